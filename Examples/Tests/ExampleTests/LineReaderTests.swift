import Glibc
import ReactorTestSupport
import SystemPackage
import Testing

@Suite struct LineReaderTests {
    private static let keys: Set = [
        "files", "lines", "bytes", "longest_line_bytes", "invalid_utf8_lines", "seconds", "peak_heap_bytes",
        "ticks", "tick_lateness_p99_us", "interrupted", "inputs",
    ]

    @Test(arguments: [[], ["--strings"], ["--chunk-size", "4k", "--in-flight", "8K"]])
    func `the totals of a file are correct`(options: [String]) async throws {
        let lines = (0..<100_000).map { "line \($0)" }
        let file = try TemporaryFile(lines.joined(separator: "\n"))
        let outcome = try await run("line-reader", options + ["--json", file.path.string])
        #expect(outcome.ending == .exit(0))
        #expect(outcome.keys == Self.keys)
        #expect(outcome["files"] == 1)
        #expect(outcome["lines"] == 100_000)
        #expect(outcome["bytes"] == Double(lines.joined(separator: "\n").utf8.count))
        #expect(outcome["longest_line_bytes"] == 10)
        #expect(outcome["invalid_utf8_lines"] == 0)
        // A sanitizer replaces malloc, so mallinfo2(3) returns zero.
        #expect(try #require(outcome["peak_heap_bytes"]) >= (isSanitized ? 0 : 1))
        #expect(outcome.errors == "")
    }

    @Test func `the totals include all files`() async throws {
        let (first, second) = (try TemporaryFile("a\nbb\n"), try TemporaryFile("ccc"))
        let arguments = ["--json", first.path.string, second.path.string, first.path.string]
        let outcome = try await run("line-reader", arguments)
        #expect(outcome["files"] == 3)
        #expect(outcome["lines"] == 5)
        #expect(outcome["bytes"] == 13)
        #expect(outcome["longest_line_bytes"] == 3)
    }

    @Test func `without --json a summary is printed`() async throws {
        let outcome = try await run("line-reader", [])
        #expect(outcome.ending == .exit(0))
        #expect(outcome.output.hasPrefix("0 lines, 0.0 MB in 1 file;"))
    }

    @Test func `every Nth line is printed with its number`() async throws {
        let file = try TemporaryFile((1...10).map { "line \($0)\n" }.joined())
        let outcome = try await run("line-reader", ["--every", "4", file.path.string])
        #expect(outcome.output.hasPrefix("4\tline 4\n8\tline 8\n10 lines"))
    }

    @Test(arguments: [
        ("\n", "newline", 2), ("\r\n", "newline", 2), ("\r\n", "crlf", 2), ("\r\n", "lf", 3),
        ("\0", "nul", 2),
    ])
    func `lines end at the requested terminator`(end: String, terminator: String, longest: Int) async throws {
        let file = try TemporaryFile("ab\(end)c\(end)")
        let outcome = try await run(
            "line-reader", ["--json", "--terminator", terminator, file.path.string])
        #expect(outcome["lines"] == 2)
        #expect(outcome["longest_line_bytes"] == Double(longest))
    }

    @Test(arguments: [["--every", "1"], ["--every", "1", "--strings"]])
    func `a line with invalid UTF-8 is counted, with and without --strings`(options: [String])
        async throws
    {
        let file = try TemporaryFile([0x61, 0x0A, 0xFF, 0x0A, 0xC3, 0xA9, 0x0A])
        let outcome = try await run("line-reader", options + ["--json", file.path.string])
        #expect(outcome["lines"] == 3)
        #expect(outcome["invalid_utf8_lines"] == 1)
        #expect(outcome.output.hasPrefix("1\ta\n2\t\u{FFFD}\n3\té\n"))
    }

    @Test func `a line over the limit fails, is truncated or is split`() async throws {
        let file = try TemporaryFile("ab\nabcde\nc\n")
        let options = ["--every", "1", "--json", "--limit", "2", "--long-lines"]
        let failed = try await run("line-reader", options + ["fail", file.path.string])
        #expect(failed.ending == .exit(1))
        #expect(failed["lines"] == 1)
        #expect(failed["bytes"] == 3)
        #expect(failed.errors == "line-reader: \(file.path.string): Line 2 has more than 2 bytes\n")
        let cut = try await run("line-reader", options + ["truncate", file.path.string])
        #expect(cut.errors == "")
        #expect(cut.ending == .exit(0))
        #expect(cut.output.hasPrefix("1\tab\n2\tab\n3\tc\n"))
        let pieces = try await run("line-reader", options + ["split", file.path.string])
        #expect(pieces.output.hasPrefix("1\tab\n2\tab\n2\tcd\n2\te\n3\tc\n"))
        #expect(pieces["longest_line_bytes"] == 5)
    }

    @Test(arguments: [
        "--every=0", "--chunk-size=0", "--chunk-size=x", "--in-flight=9999999999G", "--limit=-1",
    ])
    func `invalid arguments are rejected`(argument: String) async throws {
        #expect(try await run("line-reader", [argument]).ending == .exit(64))
    }
}

/// Whether the tests, and so the program under test, were built with a sanitizer.
private let isSanitized = dlsym(nil, "__sanitizer_print_stack_trace") != nil
