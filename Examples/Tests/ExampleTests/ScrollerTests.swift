import ExampleTestSupport
import Foundation
import Glibc
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop, .enabled("needs tmux, which is not installed") { Tmux.isInstalled }) struct ScrollerTests {
    private static let program = Child.folder + "/scroller"

    /// Runs a test's body with a terminal in which a shell runs the program, and then prints its exit status.
    private func onTerminal(
        _ arguments: String = "", _ body: (Tmux) throws -> Void
    ) throws {
        try body(try Tmux("\(Self.program) \(arguments); echo exit $?; exec cat"))
    }

    // MARK: The list

    @Test func `rows appear when they have been computed, and keys scroll`() throws {
        try onTerminal("--rows 1000") { terminal in
            let rows = ["1 = 1", "2 = 2", "3 = 3", "4 = 2 × 2", "5 = 5"]
            try terminal.wait { $0[1...5].map(\.row) == rows }
            try terminal.press("PageDown", "Down")
            try terminal.wait { $0[0].contains(" 11-19 of 1000 ") && $0[1].row == "11 = 11" }
            try terminal.press("End")
            try terminal.wait {
                $0[0].contains(" 992-1000 of 1000 ") && $0[9].row == "1000 = 2 × 2 × 2 × 5 × 5 × 5"
            }
            try terminal.press("Up", "PageUp")
            try terminal.wait { $0[0].contains(" 982-990 of 1000 ") }
            try terminal.press("Home")
            try terminal.wait { $0[0].contains(" 1-9 of 1000 ") && $0[1].row == "1 = 1" }
        }
    }

    @Test func `the lines of a file are shown without control characters`() throws {
        let long = String(repeating: "long line ", count: 200_000)
        let lines = (1...1_000).map { "line\t\($0)" } + [long, "\u{1B}[2Jé", "end"]
        let file = try TemporaryFile(lines.joined(separator: "\r\n"))
        try onTerminal("--delay 0 \(file.path)") { terminal in
            try terminal.wait { $0[0].contains(" of 1003 ") && $0[1].row == "line 1" }
            try terminal.press("End")
            try terminal.wait { $0[9].row == "end" && $0[8].row == " [2Jé" && $0[6].row == "line 1000" }
            #expect(try terminal.screen[7].hasPrefix("long line long line"))
        }
    }

    @Test func `the list fills a terminal that is resized, and says that one is too small`() throws {
        try onTerminal("--delay 0") { terminal in
            try terminal.wait { $0[0].contains(" 1-9 of ") }
            try terminal.resize(lines: 20, columns: 100)
            try terminal.wait { $0[0].contains(" 1-19 of ") && $0[19].row == "19 = 19" }
            try terminal.resize(lines: 2, columns: 40)
            try terminal.wait { $0[0] == "Too small" }
            try terminal.resize(lines: 5, columns: 90)
            try terminal.wait { $0[0].contains(" 1-4 of ") && $0[4].row == "4 = 2 × 2" }
        }
    }

    // MARK: Tracking

    @Test func `while the mouse drags, the default clock stands still and the common one goes on`() throws {
        try onTerminal("--delay 0") { terminal in
            try terminal.wait { $0[0].contains(" mode default ") }
            try terminal.send("\u{1B}[<0;9;8M")
            let start = try Header(terminal.wait { $0[0].contains(" mode tracking ") })
            try terminal.send("\u{1B}[<32;9;3M")
            let end = try Header(
                terminal.wait { Header($0).common >= start.common + 1 && $0[0].contains(" 6-14 of ") })
            #expect(end.default == start.default)
            #expect(end.mode == "tracking")
            try terminal.wait { $0[1].row == "6 = 2 × 3" }  // rows arrive meanwhile
            try terminal.send("\u{1B}[<0;9;3m")
            try terminal.wait { Header($0).mode == "default" && Header($0).default > end.common }
        }
    }

    // MARK: Restoring the terminal

    private static let endings: [(name: String, code: Int32, end: @Sendable (Tmux, pid_t) throws -> Void)] = [
        ("q while dragging", 0, { terminal, _ in try terminal.send("\u{1B}[<0;9;8Mq") }),
        ("SIGTERM", 143, { _, program in kill(program, SIGTERM) }),
        (
            "a trap while dragging", 132,
            { terminal, program in
                try terminal.send("\u{1B}[<0;9;8M")
                try terminal.wait { Header($0).mode == "tracking" }
                kill(program, SIGILL)
            }
        ),
    ]

    @Test(arguments: 0..<endings.count)
    func `the terminal is restored however the program ends`(index: Int) throws {
        let ending = Self.endings[index]
        let folder = TemporaryFolder()
        let (before, after) = (folder.path("before"), folder.path("after"))
        let terminal = try Tmux(
            "export SWIFT_BACKTRACE=enable=no; trap : INT; stty -g >\(before); \(Self.program); echo exit $?; stty -g >\(after); echo done; exec cat"
        )
        try terminal.wait { $0[0].contains(" 1-9 of ") }
        #expect(try terminal.isChanged)
        try ending.end(terminal, try terminal.program)
        try terminal.wait { $0.contains("done") }
        // The shell reports a trap in a line of its own.
        #expect(try terminal.screen.contains("exit \(ending.code)"), "\(ending.name)")
        #expect(try !terminal.isChanged, "\(ending.name)")
        #expect(content(of: after) == content(of: before))
    }

    @Test func `Ctrl-Z restores the terminal, and the program goes on in the foreground`() throws {
        let terminal = try Tmux(
            "set -m; \(Self.program) --delay 0; echo stopped; read line; fg; echo exit $?; exec cat")
        try terminal.wait { $0[0].contains(" 1-9 of ") }
        try terminal.send("\u{1B}[<0;9;8M")
        try terminal.wait { Header($0).mode == "tracking" }
        try terminal.press("C-z")
        try terminal.wait { $0.contains("stopped") }
        #expect(try !terminal.isChanged)
        try terminal.press("Enter")
        try terminal.wait { $0[9].row == "9 = 3 × 3" && Header($0).mode == "default" }
        #expect(try terminal.isChanged)
        try terminal.press("q")
        try terminal.wait { $0.contains("exit 0") }
        #expect(try !terminal.isChanged)
    }

    // MARK: Errors

    @Test func `without a file that can be read the program says so`() throws {
        for (file, reason) in [
            ("nofile", "No such file"), ("/tmp", "Is a directory"), ("/dev/null", "Not a regular"),
        ] {
            try onTerminal(file) { terminal in
                let lines = try terminal.wait { $0.contains("exit 1") }
                #expect(try lines[0].contains(reason) && !terminal.isChanged)
            }
        }
    }
}

/// The first line of the screen.
private struct Header {
    let `default`: Double
    let common: Double
    let mode: String

    /// Zero and nothing while the program has not drawn it.
    init(_ screen: [String]) {
        let words = screen[0].split(separator: " ")
        let isWhole = words.count >= 8 && words[0] == "default"
        `default` = isWhole ? Double(words[1]) ?? 0 : 0
        common = isWhole ? Double(words[4]) ?? 0 : 0
        mode = isWhole ? String(words[7]) : ""
    }
}

extension String {
    /// A row of the list, without the scroll bar.
    fileprivate var row: String {
        var text = self[...]
        if let bar = text.last, "│█".contains(bar) { text.removeLast() }
        while text.last == " " { text.removeLast() }
        return String(text)
    }
}

extension Tmux {
    /// The program that the shell runs in the foreground.
    fileprivate var program: pid_t {
        get throws {
            let children = try String(
                contentsOfFile: "/proc/\(shell)/task/\(shell)/children", encoding: .utf8)
            return pid_t(children.split(separator: " ").first ?? "") ?? 0
        }
    }
}
