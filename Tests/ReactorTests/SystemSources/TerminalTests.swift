import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// A shell on a terminal of its own.
private struct Session {
    private let child: ChildProcess.Spawned
    /// The path of the terminal.
    private let path: String

    /// - Parameter script: `$PROBE` is the program `main-loop-probe`.
    init(_ script: String) throws {
        // A sanitizer would end a program in place of SIGSEGV, with another status.
        let options = ["T", "A"].map { "\($0)SAN_OPTIONS=$\($0)SAN_OPTIONS:handle_segv=0" }
        let environment = "export SWIFT_BACKTRACE=enable=no \(options.joined(separator: " "))"
        let script = "\(environment); tty; read line; PROBE='\(Child.folder)/main-loop-probe'; \(script)"
        child = try ChildProcess.shell(
            script, standardInput: .inherited, terminal: .init(rows: 7, columns: 9))
        child.standardOutput!.open()
        child.standardInput!.open()
        path = String(child.standardOutput!.read { $0.last?.isNewline == true }.prefix { !$0.isNewline })
        // What the script writes comes after the path.
        type("\n")
    }

    var process: ChildProcess { child.process }

    /// Reads until `text` has come, and returns all that was read.
    func wait(for text: String) -> String { child.standardOutput!.read { $0.contains(text) } }

    func type(_ text: String) { _ = child.standardInput!.write(Array(text.utf8)) }

    /// Lets the shell end.
    func end() {
        type("\n")
        #expect(process.wait()?.isSuccess == true)
    }

    var isCanonical: Bool {
        let number = open(path, O_RDWR | O_NOCTTY)
        defer { close(number) }
        var settings = termios()
        #expect(tcgetattr(number, &settings) == 0)
        return settings.c_lflag & tcflag_t(ICANON) != 0
    }
}

@Suite(.runLoop) struct TerminalTests {
    private func withTerminal(_ body: (PseudoTerminal, Terminal) throws -> Void) throws {
        let pair = PseudoTerminal()
        defer { pair.close() }
        try body(pair, Terminal(input: pair.slave, output: pair.slave))
    }

    private func flags(_ pair: PseudoTerminal) -> [tcflag_t] {
        let settings = pair.settings
        return [settings.c_lflag, settings.c_iflag, settings.c_oflag, settings.c_cflag]
    }

    private struct Failure: Error {}

    @Test func `settings are changed in the body, and restored when it returns or throws`() throws {
        try withTerminal { pair, terminal in
            let before = flags(pair)
            let count = try terminal.withMode(.cbreak) {
                #expect(pair.settings.c_lflag & tcflag_t(ICANON | ECHO | ISIG) == tcflag_t(ISIG))
                // A key arrives without its line.
                _ = try pair.master.writeAll([UInt8(ascii: "k")])
                var byte: UInt8 = 0
                return try withUnsafeMutableBytes(of: &byte) { try terminal.input.read(into: $0) }
            }
            #expect(count == 1 && flags(pair) == before)
            #expect(throws: Failure.self) { try terminal.withMode(.raw) { throw Failure() } }
            #expect(flags(pair) == before)
            try terminal.withMode(.raw) {
                #expect(pair.settings.c_lflag & tcflag_t(ICANON | ECHO | ISIG) == 0)
                #expect(pair.settings.c_oflag & tcflag_t(OPOST) == 0)
                let raw = flags(pair)
                try terminal.withMode(.cbreak) {}
                #expect(flags(pair) == raw)
            }
            #expect(flags(pair) == before)
        }
    }

    @Test func `calls that overlap restore the settings from before the first, though it ends first`() throws
    {
        try withTerminal { pair, terminal in
            let before = flags(pair)
            let (entered, ending) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
            let first = try JoinableThread {
                try? terminal.withMode(.raw) {
                    entered.signal()
                    ending.wait()
                }
            }
            entered.wait()
            try terminal.withMode(.cbreak) {
                let during = flags(pair)
                ending.signal()
                first.join()
                #expect(flags(pair) == during)
            }
            #expect(flags(pair) == before)
        }
    }

    @Test func `what is to be shown is written before and after`() throws {
        try withTerminal { pair, terminal in
            try terminal.withMode(.cbreak, entering: "in\n", leaving: "out") {}
            let input = InputStream(descriptor: pair.master)
            input.open()
            #expect(input.read { $0.hasSuffix("out") } == "in\r\nout")
            input.close()
        }
    }

    @Test func `a task may wait in the body`() async throws {
        let pair = PseudoTerminal()
        defer { pair.close() }
        try await Terminal(input: pair.slave, output: pair.slave).withMode(.cbreak) {
            _ = try pair.master.writeAll([UInt8(ascii: "k")])
            let input = InputStream(descriptor: pair.slave)
            #expect(try await input.readChunk() == [UInt8(ascii: "k")])
            input.close()
        }
        #expect(pair.settings.c_lflag & tcflag_t(ICANON) != 0)
    }

    @Test func `what is no terminal is refused, and signals keep their actions`() throws {
        let pipe = try TestPipe()
        let file = pipe.readEnd
        for _ in 0..<2 {
            expectErrno(Errno(rawValue: ENOTTY)) {
                try Terminal(input: file).withMode(.raw) { Issue.record("called") }
            }
        }
        expectErrno(Errno(rawValue: ENOTTY)) { try Terminal(output: file).size() }
        #expect(throws: IOError.self) { try RunLoop.current.sizes(of: Terminal(output: file)) }
    }

    // MARK: Ends of the process

    /// How a program in the mode ends, and the status that the shell reports.
    private static let endings: [(name: String, status: Int)] = [
        ("exit", 7), ("trap", 132), ("INT", 130), ("TERM", 143), ("HUP", 129), ("PIPE", 141), ("ABRT", 134),
        ("SEGV", 139), ("caught", 130),
    ]

    @Test(arguments: 0..<endings.count)
    func `the terminal is restored however the process ends`(index: Int) throws {
        let (name, status) = Self.endings[index]
        let session = try Session(
            "ulimit -c 0; trap : INT; $PROBE \(name) 'a terminal in a mode'; echo status $?; read line"
        )
        let text = session.wait(for: "status \(status)")
        #expect(text.contains("entering"), "\(name): \(text)")
        #expect(text.contains("leaving"), "\(name): \(text)")
        #expect(session.isCanonical, "\(name)")
        session.end()
    }

    @Test func `a child of fork that exits leaves the terminal as it is`() throws {
        let session = try Session("$PROBE fork 'a terminal in a mode'; echo status $?; read line")
        #expect(session.wait(for: "status 0").components("leaving") == 1)
        session.end()
    }

    @Test func `Control-Z restores the terminal, and the foreground brings the mode back`() throws {
        for subscribes in ["", "subscribed "] {
            let session = try Session(
                "set -m; $PROBE \(subscribes)stop 'a terminal in a mode'; echo stopped; read line; fg; echo status $?; read line"
            )
            _ = session.wait(for: "waiting")
            #expect(!session.isCanonical)
            session.type("\u{1A}")
            let stopped = session.wait(for: "stopped")
            #expect(stopped.contains("leaving") && session.isCanonical)
            session.type("\n")
            #expect(session.wait(for: "entering").contains("entering"))
            waitUntil { !session.isCanonical }
            session.type("q")
            _ = session.wait(for: "status 0")
            #expect(session.isCanonical)
            session.end()
        }
    }

    // MARK: Sizes

    @Test func `the size is known, and a task hears of changes`() throws {
        let session = try Session("exec $PROBE 'sizes of a terminal'")
        #expect(session.wait(for: "7 9").contains("7 9"))
        try session.process.resizeTerminal(to: .init(rows: 30, columns: 100))
        #expect(session.wait(for: "30 100").contains("30 100"))
        try session.process.send(.resume)
        #expect(session.wait(for: "30 100").contains("30 100"))
        try session.process.resizeTerminal(to: .init(rows: 1, columns: 1))
        #expect(session.process.wait()?.isSuccess == true)
    }
}

extension String {
    /// How often `word` is in this text.
    fileprivate func components(_ word: String) -> Int {
        split(separator: word, omittingEmptySubsequences: false).count - 1
    }
}
