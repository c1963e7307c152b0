import Foundation
import ReactorTestSupport
import SystemPackage
import Testing

/// Long lines in `line-reader`, and its memory use.
@Suite struct LineReaderLengthTests {
    private static let longLineLength = 8_000_000

    @Test(arguments: [[], ["--chunk-size", "1k"], ["--chunk-size", "1M"], ["--terminator", "crlf"]])
    func `a long line is counted once`(options: [String]) async throws {
        let end = options.last == "crlf" ? "\r\n" : "\n"
        let file = try TemporaryFile(String(repeating: "x", count: Self.longLineLength) + end + "end")
        let outcome = try await run("line-reader", options + ["--json", file.path.string])
        #expect(outcome.errors == "")
        #expect(outcome.ending == .exit(0))
        #expect(outcome["lines"] == 2)
        #expect(outcome["longest_line_bytes"] == Double(Self.longLineLength))
        #expect(outcome["bytes"] == Double(Self.longLineLength + end.utf8.count + 3))
    }

    @Test func `a long line is printed completely`() async throws {
        let line = String(repeating: "0123456789", count: 20_000)
        let file = try TemporaryFile("a\n\(line)\nb\n")
        let outcome = try await run("line-reader", ["--every", "1", file.path.string])
        #expect(outcome.output.hasPrefix("1\ta\n2\t\(line)\n3\tb\n3 lines"))
    }

    @Test(arguments: 0..<4)
    func `a long line is validated as UTF-8 across its parts`(shift: Int) async throws {
        let line = String(repeating: "a", count: shift) + String(repeating: "水é🎏", count: 10_000)
        let bytes = Array("\(line)\n\(line)".utf8)
        let file = try TemporaryFile(bytes)
        let good = try await run("line-reader", ["--json", file.path.string])
        #expect(good["invalid_utf8_lines"] == 0)
        #expect(good["lines"] == 2)
        for fault in [10, 16_383, 16_384, 40_000, line.utf8.count - 1] {
            var broken = bytes
            broken[fault] = 0xff
            let file = try TemporaryFile(broken)
            let outcome = try await run("line-reader", ["--json", file.path.string])
            #expect(outcome["invalid_utf8_lines"] == 1)
        }
    }

    @Test(arguments: [["--strings"], ["--long-lines", "fail"], ["--limit", "1M"]])
    func `options that keep whole lines limit their length`(options: [String]) async throws {
        let file = try TemporaryFile(String(repeating: "x", count: 1_048_577) + "\n")
        let outcome = try await run("line-reader", options + ["--json", file.path.string])
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "line-reader: \(file.path.string): Line 1 has more than 1048576 bytes\n")
    }

    /// The variation of malloc's arenas between runs on a busy machine. Keeping a whole line would take twice its length.
    private static let slack = 500_000.0

    @Test(arguments: [[], ["--every", "1"], ["--long-lines", "split", "--limit", "4k"]])
    func `a long line uses no more heap than short ones`(options: [String]) async throws {
        let line = String(repeating: "x", count: 63) + "\n"
        let short = try TemporaryFile(String(repeating: line, count: 4 * Self.longLineLength / 64))
        let long = try TemporaryFile(String(repeating: "x", count: 4 * Self.longLineLength))
        let expected = try await run("line-reader", ["--json", short.path.string])
        let outcome = try await run("line-reader", options + ["--json", long.path.string])
        let (heap, least) = (
            try #require(outcome["peak_heap_bytes"]), try #require(expected["peak_heap_bytes"])
        )
        #expect(heap <= least + Self.slack)
    }

    @Test func `chunks of one byte use no more heap than large ones`() async throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 20_000))
        let expected = try await run("line-reader", ["--json", file.path.string])
        let outcome = try await run("line-reader", ["--chunk-size", "1", "--json", file.path.string])
        #expect(outcome["lines"] == 20_000)
        let (heap, least) = (
            try #require(outcome["peak_heap_bytes"]), try #require(expected["peak_heap_bytes"])
        )
        #expect(heap <= least + Self.slack)
    }
}
