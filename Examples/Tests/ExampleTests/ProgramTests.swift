import Foundation
import Glibc
import ReactorTestSupport
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

    @Test(arguments: [("glib-lines", []), ("poll-host", []), ("timers", ["--seconds", "0.1", "--json"])])
    func `standard output that is full is an error`(program: String, arguments: [String]) throws {
        let outcome = try run(program, arguments, input: .pipe, output: .path("/dev/full")) { child in
            child.write("one\n")
            child.closeInput()
            return ""
        }
        #expect(outcome.failed("\(program): standard output"))
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
        let arguments = command.replacing("FOLDER", with: folder.path.string)
            .replacing("FILE", with: text.path.string).replacing("URL", with: server.url)
        for limit in stride(from: least, through: 34, by: Depth.of(full: 1, quick: 3)) {
            let outcome = try run(limit: "-n \(limit)", arguments)
            let hasSucceeded = outcome.ending == .exit(0) && outcome[key] ?? 0 >= 1
            #expect(hasSucceeded || key != "tracking_during" && outcome.failed("Too many open files"))
            for name in folder.names { unlink(folder.path(name)) }
        }
    }
}
