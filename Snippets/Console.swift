import Reactor

/// Runs a command in a terminal of its own, and shows its last lines below a clock, until `q` is pressed:
/// Console ping localhost
@MainActor
final class Console {
    private let terminal = Terminal()
    /// A terminal that the user has stopped with Control-S takes nothing, and the program does not wait for it.
    private let screen = SendQueue(to: OutputStream(descriptor: .standardOutput))
    private let child: ChildProcess
    private let output: InputStream
    private var lines: [String] = []
    private var seconds = 0
    private var size: Terminal.Size

    init(_ command: [String]) throws {
        size = try terminal.size()
        let spawned = try ChildProcess.spawn(
            .init(command[0], Array(command.dropFirst()), group: .new, terminal: size))
        (child, output) = (spawned.process, spawned.standardOutput!)
    }

    func run() async throws {
        // The second screen, without a cursor.
        let (entering, leaving) = ("\u{1B}[?1049h\u{1B}[?25l", "\u{1B}[?25h\u{1B}[?1049l")
        try await terminal.withMode(.cbreak, entering: entering, leaving: leaving) {
            async let _ = readOutput()
            async let _ = followSize()
            async let _ = countSeconds()
            for try await byte in InputStream(descriptor: .standardInput).bytes {
                if byte == UInt8(ascii: "q") { break }
            }
            child.terminate(killAfter: .seconds(2), group: true)
            try? await screen.flush(timeout: .seconds(1))
        }
    }

    private func readOutput() async throws {
        for try await line in output.lines {
            lines = lines.suffix(Int(size.rows)) + [line]
            draw()
        }
        lines.append("\(try await RunLoop.main.termination(of: child).reason); press q")
        draw()
    }

    private func followSize() async throws {
        for try await size in try RunLoop.main.sizes(of: terminal) {
            self.size = size
            try? child.resizeTerminal(to: size)
            draw()
        }
    }

    private func countSeconds() async throws {
        for await _ in RunLoop.main.ticks(every: .seconds(1)) {
            seconds += 1
            draw()
        }
    }

    /// A frame that the terminal has not taken is replaced by the next one.
    private func draw() {
        let rows = ["\(seconds) s"] + lines.suffix(Int(size.rows) - 1)
        let text = rows.map { "\($0.prefix(Int(size.columns)))\u{1B}[K" }.joined(separator: "\n")
        try? screen.send(Array("\u{1B}[H\(text)\u{1B}[J".utf8), replacing: "frame")
    }
}

let command = Array(CommandLine.arguments.dropFirst())
try await Console(command.isEmpty ? ["ping", "localhost"] : command).run()
