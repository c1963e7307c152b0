import ExampleTestSupport
import Glibc
import Testing

/// A terminal of a tmux server of its own, in which a shell runs. Its methods block.
final class Tmux: Sendable {
    /// Where Debian and others install it.
    private static let program = "/usr/bin/tmux"
    static var isInstalled: Bool { access(program, X_OK) == 0 }

    private let folder = TemporaryFolder()
    private var socket: String { folder.path("tmux") }

    /// Starts a shell that runs `script`, on ten lines of 80 columns.
    init(_ script: String) throws {
        _ = try tmux(["new-session", "-d", "-x", "80", "-y", "10", "sh", "-c", script])
    }

    deinit { _ = try? tmux(["kill-server"]) }

    /// A path for a file that the script writes.
    func path(_ name: String) -> String { folder.path(name) }

    /// The lines on the screen, without spaces at their ends.
    var screen: [String] {
        get throws {
            try tmux(["capture-pane", "-p"]).split(separator: "\n", omittingEmptySubsequences: false).map(
                String.init)
        }
    }

    /// The process that the terminal belongs to.
    var shell: pid_t { get throws { pid_t(try value("#{pane_pid}")) ?? 0 } }

    /// Presses keys, by tmux's names for them.
    func press(_ keys: String...) throws { _ = try tmux(["send-keys"] + keys) }

    /// Sends bytes as they are.
    func send(_ text: String) throws { _ = try tmux(["send-keys", "-l", text]) }

    func resize(lines: Int, columns: Int) throws {
        _ = try tmux(["resize-window", "-x", "\(columns)", "-y", "\(lines)"])
    }

    /// Whether a full-screen program has changed the terminal: its screen, mouse or cursor.
    var isChanged: Bool {
        get throws {
            try value("#{alternate_on} #{mouse_any_flag} #{mouse_sgr_flag} #{cursor_flag}") != "0 0 0 1"
        }
    }

    /// Waits until `condition` holds for the screen, and returns that screen.
    @discardableResult
    func wait(_ condition: ([String]) -> Bool) throws -> [String] {
        var lines: [String] = []
        waitUntil {
            lines = (try? screen) ?? []
            return !lines.isEmpty && condition(lines)
        }
        return lines
    }

    private func value(_ format: String) throws -> String {
        String(try tmux(["display-message", "-p", format]).dropLast())
    }

    private func tmux(_ arguments: [String]) throws -> String {
        let child = try Child(Self.program, ["-S", socket, "-f", "/dev/null"] + arguments)
        let output = child.readOutput()
        let errors = child.readErrors()
        guard child.wait() == .exit(0) else { throw TmuxError(message: errors) }
        return output
    }
}

struct TmuxError: Error {
    let message: String
}
