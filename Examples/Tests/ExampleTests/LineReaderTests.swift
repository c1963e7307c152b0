import ExampleTestSupport
import Foundation
import Glibc
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct LineReaderTests {
    private func read(_ options: [String], _ bytes: some Sequence<UInt8>) throws -> Outcome {
        let file = try TemporaryFile(bytes)
        return try run("line-reader", options + ["--json", file.path.string])
    }

    private func read(_ options: [String], _ text: String) throws -> Outcome { try read(options, text.utf8) }

    // MARK: Totals

    @Test(arguments: [[], ["--strings"], ["--chunk-size", "4k", "--in-flight", "8K"]])
    func `the totals of a file are correct`(options: [String]) throws {
        let text = (0..<20_000).map { "line \($0)" }.joined(separator: "\n")
        let outcome = try read(options, text)
        #expect(outcome.isClean)
        let keys: Set = [
            "files", "lines", "bytes", "longest_line_bytes", "invalid_utf8_lines", "seconds",
            "peak_heap_bytes",
            "ticks", "tick_lateness_p99_us", "interrupted", "inputs",
        ]
        #expect(outcome.keys == keys)
        let totals = ["files", "lines", "bytes", "longest_line_bytes", "invalid_utf8_lines"].map {
            outcome[$0]
        }
        #expect(totals == [1, 20_000, Double(text.utf8.count), 10, 0])
    }

    @Test func `the totals and the summary include all files`() throws {
        let (first, second) = (try TemporaryFile("a\nbb\n"), try TemporaryFile("ccc"))
        let files = [first, second, first].map(\.path.string)
        let outcome = try run("line-reader", ["--json"] + files)
        let totals = ["files", "lines", "bytes", "longest_line_bytes"].map { outcome[$0] }
        #expect(totals == [3, 5, 13, 3])
        #expect(try run("line-reader", files).output.hasPrefix("5 lines, 0.0 MB in 3 files;"))
    }

    @Test func `every Nth line is printed with its number, and completely`() throws {
        let line = String(repeating: "0123456789", count: 20_000)
        let outcome = try read(["--every", "2"], "a\n\(line)\nc\nd\n")
        #expect(outcome.output.hasPrefix("2\t\(line)\n4\td\n{"))
    }

    @Test(arguments: [
        ("\n", "newline", 2), ("\r\n", "newline", 2), ("\r\n", "crlf", 2), ("\r\n", "lf", 3),
        ("\0", "nul", 2),
    ])
    func `lines end at the requested terminator`(end: String, terminator: String, longest: Int) throws {
        let outcome = try read(["--terminator", terminator], "ab\(end)c\(end)")
        #expect(outcome["lines"] == 2 && outcome["longest_line_bytes"] == Double(longest))
    }

    @Test(arguments: [["--every", "1"], ["--every", "1", "--strings"]])
    func `a line with invalid UTF-8 is counted, with and without --strings`(options: [String]) throws {
        let outcome = try read(options, [0x61, 0x0A, 0xFF, 0x0A, 0xC3, 0xA9, 0x0A])
        #expect(outcome["lines"] == 3 && outcome["invalid_utf8_lines"] == 1)
        #expect(outcome.output.hasPrefix("1\ta\n2\t\u{FFFD}\n3\té\n"))
    }

    @Test func `a line over the limit fails, is truncated or is split`() throws {
        func read(_ handling: String) throws -> Outcome {
            let options = ["--every", "1", "--limit", "2", "--long-lines", handling]
            return try self.read(options, "ab\nabcde\nc\n")
        }
        let failed = try read("fail")
        #expect(failed.failed("Line 2") && failed["lines"] == 1 && failed["bytes"] == 3)
        let cut = try read("truncate")
        #expect(cut.isClean && cut.output.hasPrefix("1\tab\n2\tab\n3\tc\n"))
        let pieces = try read("split")
        #expect(
            pieces.output.hasPrefix("1\tab\n2\tab\n2\tcd\n2\te\n3\tc\n") && pieces["longest_line_bytes"] == 5)
    }

    // MARK: Long lines

    private static let length = 4_000_000

    @Test(arguments: [[], ["--chunk-size", "1k"], ["--chunk-size", "1M"], ["--terminator", "crlf"]])
    func `a long line is counted once`(options: [String]) throws {
        let end = options.last == "crlf" ? "\r\n" : "\n"
        let outcome = try read(options, String(repeating: "x", count: Self.length) + end + "end")
        #expect(outcome.isClean && outcome["lines"] == 2)
        #expect(outcome["longest_line_bytes"] == Double(Self.length))
        #expect(outcome["bytes"] == Double(Self.length + end.utf8.count + 3))
    }

    @Test(arguments: [["--strings"], ["--long-lines", "fail"], ["--limit", "1M"]])
    func `options that keep whole lines limit their length`(options: [String]) throws {
        let outcome = try read(options, String(repeating: "x", count: 1_048_577) + "\n")
        #expect(outcome.failed("Line 1 has more than 1048576 bytes"))
    }

    /// The variation of malloc's arenas between runs on a busy machine. Keeping a whole line would take twice its length.
    private static let slack = 500_000.0

    @Test(arguments: [
        [], ["--every", "1"], ["--long-lines", "split", "--limit", "4k"], ["--chunk-size", "1"],
    ])
    func `long lines and small chunks use no more heap than short lines`(options: [String]) throws {
        let isSmall = options.first == "--chunk-size"
        let length = isSmall ? 100_000 : Self.length
        let short = String(repeating: String(repeating: "x", count: 63) + "\n", count: length / 64)
        let least = try read([], short)["peak_heap_bytes"]
        let heap = try read(options, isSmall ? short : String(repeating: "x", count: length))[
            "peak_heap_bytes"]
        #expect(try #require(heap) <= #require(least) + Self.slack)
    }

    // MARK: Input and output

    @Test func `a file that cannot be read is reported, and the other files are read`() throws {
        let file = try TemporaryFile("a\n")
        let odd = "no\"such\\file\n\u{1}"
        let outcome = try run("line-reader", ["--json", odd, file.path.string, "/tmp"])
        #expect(outcome.failed("line-reader: /tmp: Is a directory\n"))
        #expect(outcome["files"] == 1 && outcome["lines"] == 1 && outcome["interrupted"] == 0)
        let inputs = outcome.objects("inputs")
        #expect(inputs.map { $0["path"] as? String } == [odd, file.path.string, "/tmp"])
        #expect(inputs.map { $0["whole"] as? Bool } == [false, true, false])
        let errors = ["No such file or directory", nil, "Is a directory"]
        #expect(
            inputs.map { $0["error"] as? String } == errors
                && inputs.map { $0["lines"] as? Int } == [0, 1, 0])
        let summary = try run("line-reader", ["nofile", file.path.string]).output
        #expect(summary.hasPrefix("1 of 2 files not read to the end\n1 lines"))
    }

    @Test(arguments: ["/dev/null", "-"]) func `empty input is not an error`(file: String) throws {
        let outcome = try run("line-reader", ["--json", file])
        #expect(outcome.isClean && outcome["files"] == 1 && outcome["bytes"] == 0)
    }

    // MARK: Signals

    @Test(arguments: [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")])
    func `a signal ends reading, and the totals and the summary say so`(signal: CInt, name: String) throws {
        for options in [["--every", "1", "--json", "-", "nofile"], ["--every", "1"]] {
            let outcome = try run("line-reader", options, input: .pipe) { child in
                child.write("a\nb\n")
                let lines = child.readOutput(lines: 2)
                child.send(signal)
                return lines + child.readOutput()
            }
            #expect(outcome.ending == .exit(128 + signal) && outcome.errors == "")
            guard options.contains("--json") else {
                #expect(outcome.output.hasPrefix("1\ta\n2\tb\nInterrupted by \(name): 1 of 1 file not read"))
                continue
            }
            #expect(outcome.output.hasPrefix("1\ta\n2\tb\n{"))
            #expect(["lines", "bytes", "interrupted"].map { outcome[$0] } == [2, 4, 1])
            let inputs = outcome.objects("inputs")
            #expect(inputs.map { $0["whole"] as? Bool } == [false, false])
            #expect(
                inputs.map { $0["lines"] as? Int } == [2, 0] && inputs.allSatisfy { $0["error"] is NSNull })
        }
    }

    @Test func `a second signal kills a program whose output is blocked`() throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 100_000))
        let outcome = try run("line-reader", ["--every", "1", file.path.string]) { child in
            // The worker's write blocks, so the first signal cannot end the program. Signals may coalesce, so send
            // them until the process has ended.
            child.waitUntilOutputIsFull()
            waitUntil {
                child.send(SIGINT)
                return child.hasEnded
            }
            return ""
        }
        #expect(outcome.ending == .signal(SIGINT))
    }
}
