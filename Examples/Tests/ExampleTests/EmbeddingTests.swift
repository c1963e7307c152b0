import ReactorTestSupport
import SystemPackage
import Testing

/// The programs in which another event loop runs the library's, or the reverse.
@Suite struct EmbeddingTests {
    private func outcome(_ program: String, _ arguments: [String] = []) async throws -> Outcome {
        try await run(program, arguments, input: .pipe) { child in
            child.write("one\n")
            let first = child.readOutput(lines: 1)
            child.write("two\nthree\n")
            child.closeInput()
            return first + child.readOutput()
        }
    }

    private static let lines = "1: one\n2: two\n3: three\n"

    @Test(arguments: [[], ["guest"]])
    func `GLib and the run loop serve each other's sources`(arguments: [String]) async throws {
        let outcome = try await outcome("glib-lines", arguments)
        #expect(outcome.output == Self.lines + "GLib's timeout, the timer and the task were called.\n")
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test func `a host in C that knows only poll runs a library in Swift`() async throws {
        let outcome = try await outcome("poll-host")
        #expect(outcome.output == Self.lines + "3 lines\n")
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test(arguments: ["glib-lines", "poll-host"])
    func `standard output that is full is an error`(program: String) async throws {
        let outcome = try await run(program, [], input: .pipe, output: .path("/dev/full")) { child in
            child.write("one\n")
            child.closeInput()
            return ""
        }
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors.hasPrefix("\(program): standard output"))
    }

    private static let python = ["/usr/bin/python3", "/usr/local/bin/python3"].first {
        (try? FileDescriptor.open(FilePath($0), .readOnly).close()) != nil
    }

    @Test(.enabled(if: python != nil, "python3 is not installed"))
    func `asyncio runs a library in Swift`() async throws {
        let script =
            #filePath.split(separator: "/").dropLast(3).map { "/" + $0 }.joined() + "/asyncio-host.py"
        let outcome = try await outcome(
            try #require(Self.python), [script, Child.folder + "/libHostedLines.so"])
        #expect(outcome.output == Self.lines + "3 lines\n")
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }
}
