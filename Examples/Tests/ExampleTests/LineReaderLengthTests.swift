import Foundation
import ReactorTestSupport
import SystemPackage
import Testing

/// What `line-reader` makes of lines of any length, and what that takes.
@Suite struct LineReaderLengthTests {
    private static let long = 8_000_000

    @Test(arguments: [[], ["--chunk-size", "1k"], ["--chunk-size", "1M"], ["--terminator", "crlf"]])
    func `a line of any length is counted`(options: [String]) async throws {
        let end = options.last == "crlf" ? "\r\n" : "\n"
        let file = try TemporaryFile(String(repeating: "x", count: Self.long) + end + "end")
        let outcome = try await running("line-reader", options + ["--json", file.path.string])
        #expect(outcome.errors == "")
        #expect(outcome.ending == .exit(0))
        #expect(outcome["lines"] == 2)
        #expect(outcome["longest_line_bytes"] == Double(Self.long))
        #expect(outcome["bytes"] == Double(Self.long + end.utf8.count + 3))
    }

    @Test func `a line of any length is printed whole`() async throws {
        let line = String(repeating: "0123456789", count: 20_000)
        let file = try TemporaryFile("a\n\(line)\nb\n")
        let outcome = try await running("line-reader", ["--every", "1", file.path.string])
        #expect(outcome.output.hasPrefix("1\ta\n2\t\(line)\n3\tb\n3 lines"))
    }

    @Test(arguments: 0..<4)
    func `a long line is UTF-8 wherever its pieces are cut`(shift: Int) async throws {
        let line = String(repeating: "a", count: shift) + String(repeating: "水é🎏", count: 10_000)
        let bytes = Array("\(line)\n\(line)".utf8)
        let file = try TemporaryFile(bytes)
        let good = try await running("line-reader", ["--json", file.path.string])
        #expect(good["invalid_utf8_lines"] == 0)
        #expect(good["lines"] == 2)
        for fault in [10, 16_383, 16_384, 40_000, line.utf8.count - 1] {
            var broken = bytes
            broken[fault] = 0xff
            let file = try TemporaryFile(broken)
            let outcome = try await running("line-reader", ["--json", file.path.string])
            #expect(outcome["invalid_utf8_lines"] == 1)
        }
    }

    @Test(arguments: [["--strings"], ["--long-lines", "fail"], ["--limit", "1M"]])
    func `what holds a line whole has a limit`(options: [String]) async throws {
        let file = try TemporaryFile(String(repeating: "x", count: 1_048_577) + "\n")
        let outcome = try await running("line-reader", options + ["--json", file.path.string])
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "line-reader: \(file.path.string): Line 1 has more than 1048576 bytes\n")
    }

    /// What malloc's arenas differ by from run to run on a busy machine. A line held whole takes twice its length, and
    /// chunks without a bound took 14 MB.
    private static let slack = 500_000.0

    /// The heap is looked at each ten milliseconds.
    @Test(arguments: [[], ["--every", "1"], ["--long-lines", "split", "--limit", "4k"]])
    func `a long line takes no more heap than short ones`(options: [String]) async throws {
        let line = String(repeating: "x", count: 63) + "\n"
        let short = try TemporaryFile(String(repeating: line, count: 4 * Self.long / 64))
        let long = try TemporaryFile(String(repeating: "x", count: 4 * Self.long))
        let expected = try await running("line-reader", ["--json", short.path.string])
        let outcome = try await running("line-reader", options + ["--json", long.path.string])
        let (heap, least) = (
            try #require(outcome["peak_heap_bytes"]), try #require(expected["peak_heap_bytes"])
        )
        #expect(heap <= least + Self.slack)
    }

    @Test func `chunks of one byte take no more heap than large ones`() async throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 20_000))
        let expected = try await running("line-reader", ["--json", file.path.string])
        let outcome = try await running("line-reader", ["--chunk-size", "1", "--json", file.path.string])
        #expect(outcome["lines"] == 20_000)
        let (heap, least) = (
            try #require(outcome["peak_heap_bytes"]), try #require(expected["peak_heap_bytes"])
        )
        #expect(heap <= least + Self.slack)
    }
}
