import ExampleTestSupport
import Foundation
import Glibc
import ReactorTesting
import SystemPackage
import Testing

/// The timers, the programs that count lines in other ways, and what all programs do when descriptors are few.
@Suite(.runLoop) struct ProgramTests {
    // MARK: Timers

    @Test func `during the drag the tracking timer fires and the default timer does not`() throws {
        let outcome = try run("timers", ["--json", "--seconds", "0.5"])
        #expect(outcome.isClean && outcome.keys.count == 9)
        for key in ["default_during", "tracking_before", "tracking_after"] { #expect(outcome[key] == 0) }
        for key in ["default_before", "default_after", "common_before", "common_during", "tracking_during"] {
            #expect(try #require(outcome[key]) >= 1, "\(key)")
        }
    }

    @Test func `the log has the drag, and the late firing of the default timer after it`() throws {
        let outcome = try run("timers", ["--seconds", "0.2"])
        let lines = outcome.output.split(separator: "\n")
        let begin = try #require(lines.firstIndex { $0.contains("The drag begins") })
        let end = try #require(lines.firstIndex { $0.contains("The drag ends") })
        let column = "seconds  ".count
        #expect(!lines[begin + 1..<end].contains { $0.dropFirst(column).hasPrefix("fired") })
        #expect(lines[end...].contains { $0.dropFirst(column).hasPrefix("fired, ") })
    }

    // MARK: Lines

    /// Runs a program that prints each line with its number.
    private func outcome(_ program: String, _ arguments: [String] = []) throws -> Outcome {
        try run(program, arguments, input: .pipe) { child in
            child.write("one\n")
            let first = child.readOutput(lines: 1)
            child.write("two\nthree\n")
            child.closeInput()
            return first + child.readOutput()
        }
    }

    private static let python = ["/usr/bin/python3", "/usr/local/bin/python3"].first { path in
        access(path as String, X_OK) == 0
    }
    private static let asyncio = #filePath.replacing(
        "Tests/ExampleTests/ProgramTests.swift", with: "asyncio-host.py")

    @Test(
        arguments: [
            ("glib-lines", []), ("glib-lines", ["guest"]), ("poll-host", []),
            (python, [asyncio, Child.folder + "/libHostedLines.so"]),
        ] as [(String?, [String])])
    func `GLib, a host in C that knows only poll, and asyncio serve the lines`(
        program: String?, arguments: [String]
    ) throws {
        guard let program else { return }
        let outcome = try outcome(program, arguments)
        let end =
            program == "glib-lines" ? "GLib's timeout, the timer and the task were called.\n" : "3 lines\n"
        #expect(outcome.isClean && outcome.output == "1: one\n2: two\n3: three\n" + end)
    }

    @Test func `an actor counts the lines of standard input on its thread`() throws {
        let outcome = try run("line-actor", input: .pipe) { child in
            child.write(String(repeating: "line\n", count: 10_000))
            child.closeInput()
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0) && outcome.output.split(separator: "\n").last == "10000 lines")
    }

    @Test(arguments: [[], ["--poll"]])
    func `a host asks its servers, and outlives one that is killed`(options: [String]) throws {
        let outcome = try run("mcp-host", ["--children", "5", "--idle", "0", "--rounds", "10"] + options)
        let lines = outcome.output.split(separator: "\n")
        #expect(outcome.isClean && lines.count == 4)
        #expect(lines.first?.hasPrefix("5 servers have started in ") == true)
        #expect(lines.last?.hasSuffix(" and 4 answer") == true)
    }

    @Test func `a server of the protocol answers what it knows, and says what it does not`() throws {
        let requests = #"""
            {"jsonrpc":"2.0","id":1,"method":"ping"}
            {"jsonrpc":"2.0","method":"notifications/initialized"}
            {"jsonrpc":"2.0","id":2,"method":"fly"}
            no JSON

            """#
        let outcome = try run("mcp-host", ["--serve"], input: .pipe) { child in
            child.write(requests)
            child.closeInput()
            return child.readOutput()
        }
        let lines = outcome.output.split(separator: "\n")
        #expect(outcome.isClean && lines.count == 3)
        #expect(lines[0].contains(#""id":1"#) && lines[0].contains(#""result":{}"#))
        #expect(lines[1].contains(#""id":2"#) && lines[1].contains("-32601"))
        #expect(lines[2].contains("-32700"))
    }

    // MARK: Errors

    /// The words of a command, with the paths and the URL that a test has made.
    private func words(_ command: String, _ folder: TemporaryFolder, _ server: TestServer) -> [String] {
        command.replacing("FOLDER", with: folder.path.string).replacing("URL", with: server.url)
            .split(separator: " ", omittingEmptySubsequences: false).map(String.init)
    }

    @Test(arguments: [
        "line-reader --every 1", "importer - FOLDER/stops.db", "downloader --output FOLDER URL/x",
        "glib-lines",
        "poll-host", "timers --seconds 0.1 --json", "line-actor", "echo-server --port 0 --json",
        "chat --port 0", "echo-tasks 0", "chat-tasks 0", "echo-service 0",
    ])
    func `standard output that is full or closed is an error, and a closed pipe is not`(command: String)
        throws
    {
        let (folder, server) = (TemporaryFolder(), try TestServer.responding { _, _ in response(body: "x") })
        let words = words(command, folder, server)
        func run(_ output: Child.End, closingOutput: Bool = false) throws -> Outcome {
            try ExampleTests.run(words[0], Array(words.dropFirst()), input: .pipe, output: output) { child in
                if closingOutput { child.closeOutput() }
                child.write("stop_id\none\n")
                child.closeInput()
                return ""
            }
        }
        // poll-host is written in C, and names only what has failed.
        let reason = words[0] == "poll-host" ? "standard output" : "No space left on device"
        #expect(try run(.path("/dev/full")).failed(reason))
        if ["line-reader", "importer", "downloader", "chat", "echo-server"].contains(words[0]) {
            #expect(try run(.closed).failed("Bad file descriptor"))
        }
        if ["line-reader", "importer", "downloader"].contains(words[0]) {
            #expect(try run(.pipe, closingOutput: true).isClean)
        }
    }

    @Test(arguments: [
        "line-reader --every=0", "line-reader --chunk-size=0", "line-reader --chunk-size=x",
        "line-reader --in-flight=9999999999G", "line-reader --limit=-1", "importer a",
        "importer a b --batch 0",
        "downloader", "downloader ftp://host/x", "downloader host/x", "downloader --retries -1 http://x/",
        "downloader --max-concurrent 0 http://x/", "echo-tasks none", "echo-service 65536", "chat-tasks -1",
        "echo-server --host nowhere", "echo-server --threads 0", "echo-server --threads 2 --unix /tmp/a",
        "echo-server --drain-seconds -1", "echo-server --unix ", "echo-server --port 0 --tls",
        "echo-server --port 0 --certificate x",
        "echo-server --port 0 --tls --certificate /missing --key /missing", "scroller",
        "mcp-host --children 0", "mcp-host --idle -1",
    ])
    func `invalid arguments are rejected`(command: String) throws {
        let words = command.split(separator: " ", omittingEmptySubsequences: false).map(String.init)
        let outcome = try run(words[0], Array(words.dropFirst()))
        #expect([.exit(1), .exit(64)].contains(outcome.ending))
        #expect(outcome.output.isEmpty && !outcome.errors.isEmpty)
    }

    // MARK: Limits

    @Test(arguments: [
        (8, "line-reader --json FILE", "lines"), (4, "importer FILE FOLDER/stops.db --json", "saved"),
        (5, "timers --json --seconds 0.1", "tracking_during"),
        (4, "downloader --retries 0 --json --output FOLDER URL/x", "bytes"),
    ])
    func `a program does its work or says that there are too few descriptors`(
        least: Int, command: String, key: String
    ) throws {
        let (folder, text) = (TemporaryFolder(), try TemporaryFile("stop_id\na\nb\n"))
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let arguments = words(command.replacing("FILE", with: text.path.string), folder, server)
            .joined(separator: " ")
        for limit in stride(from: least, through: 34, by: Depth.of(full: 1, quick: 3)) {
            let outcome = try run(limit: "-n \(limit)", arguments)
            let hasSucceeded = outcome.ending == .exit(0) && outcome[key] ?? 0 >= 1
            #expect(hasSucceeded || key != "tracking_during" && outcome.failed("Too many open files"))
            for name in folder.names { unlink(folder.path(name)) }
        }
    }
}
