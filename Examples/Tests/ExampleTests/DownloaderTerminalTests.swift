import ExampleTestSupport
import Glibc
import ReactorTesting
import SystemPackage
import Testing

/// The bars of the downloader, on a pseudo-terminal.
@Suite(.runLoop) struct DownloaderTerminalTests {
    private let folder = TemporaryFolder()

    /// Sends half of each body, and the rest once a test permits it.
    private static func halting(_ gate: Shared<Bool>) throws -> TestServer {
        try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhello")
            gate.wait { $0 ? () : nil }
            peer.send("world")
        }
    }

    /// Downloads files called 0, 1 and so on.
    ///
    /// - Parameter body: Called with the terminal, and with what lets the downloads end. Returns output.
    /// - Returns: That output, and the rest.
    private func download(
        _ count: Int = 1, _ terminal: PseudoTerminal, environment: [String] = ["TERM=xterm", "NO_COLOR=1"],
        _ body: (PseudoTerminal) throws -> String
    ) throws -> (before: String, after: String) {
        let gate = Shared(false)
        let server = try Self.halting(gate)
        let arguments = ["--output", folder.path.string] + (0..<count).map { "\(server.url)/\($0)" }
        var before = ""
        let outcome = try run(
            "/usr/bin/env", environment + [Child.folder + "/downloader"] + arguments,
            output: .path(terminal.path), errors: .path(terminal.path)
        ) { _ in
            before = try body(terminal)
            gate.value = true
            return terminal.readToEnd()
        }
        #expect(outcome.ending == .exit(0))
        return (before, outcome.output)
    }

    /// Reads until all downloads show what the server has sent, and then a whole frame.
    private static func readFrames(_ terminal: PseudoTerminal, until text: String) throws -> String {
        try #require(terminal.read(to: text)) + #require(terminal.read(to: "\u{1B}[J"))
            + #require(terminal.read(to: "\u{1B}[J"))
    }

    /// The lines of the last frame, without what erases the one before.
    private static func lastFrame(_ output: String) -> [Substring] {
        let frames = output.split(separator: "\u{1B}[J")
        return (frames.last?.split(separator: "\r\n") ?? []).filter { !$0.hasPrefix("\r\u{1B}[") }
    }

    @Test func `there is a bar for each download and one for all`() throws {
        let (before, after) = try download(3, PseudoTerminal(columns: 101)) {
            try Self.readFrames($0, until: "50 %")
        }
        let lines = Self.lastFrame(before)
        let bar = "[" + String(repeating: "#", count: 20) + String(repeating: "-", count: 20) + "]"
        #expect(lines.map { $0.prefix(6) } == ["0     ", "1     ", "2     ", "0 of 3"])
        #expect(lines.allSatisfy { $0.contains(bar + "   50 %") })
        #expect(after.contains("\(folder.path("2")): 10 B in "))
        #expect(after.hasSuffix("\r\n"))
    }

    @Test(arguments: [1, 9, 30, 300])
    func `each bar fits into a line`(columns: Int) throws {
        let (before, _) = try download(2, PseudoTerminal(columns: columns)) {
            try Self.readFrames($0, until: "\u{1B}[3A")
        }
        let lines = Self.lastFrame(before)
        #expect(lines.count == 3)
        #expect(lines.allSatisfy { (1...max(columns - 1, 1)).contains($0.count) })
    }

    @Test func `a terminal that becomes narrower has wrapped the bars that are erased`() throws {
        _ = try download(1, PseudoTerminal(columns: 100)) { terminal in
            let before = try #require(terminal.read(to: "\u{1B}[2A"))
            terminal.resize(columns: 50)
            return before + (try #require(terminal.read(to: "\u{1B}[4A")))
                + (try #require(terminal.read(to: "\u{1B}[2A")))
        }
    }

    @Test(arguments: [("TERM=xterm", "NO_COLOR=", true), ("TERM=xterm", "NO_COLOR=1", false)])
    func `bars have a color unless that is not wanted`(type: String, color: String, isColored: Bool) throws {
        let (before, _) = try download(1, PseudoTerminal(columns: 100), environment: [type, color]) {
            try Self.readFrames($0, until: "50 %")
        }
        #expect(before.contains("\u{1B}[32m####") == isColored)
    }

    @Test func `a dumb terminal gets plain lines`() throws {
        let (_, after) = try download(
            1, PseudoTerminal(columns: 100), environment: ["TERM=dumb"]
        ) { _ in
            waitUntil { access(folder.path("0.part"), F_OK) == 0 }
            return ""
        }
        #expect(!after.contains("\u{1B}"))
        #expect(after.hasPrefix("\(folder.path("0")): 10 B in "))
    }
}
