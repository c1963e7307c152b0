import Dispatch
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct LineReaderFileTests {
    /// Lines of mostly well-formed text, some with a byte that is not UTF-8.
    private static func text(_ generator: inout SeededGenerator, faults: Int) -> [UInt8] {
        let units = ["a", "bcdefgh", "\n", "\n", "é", "日", "🎏"].map { Array($0.utf8) }
        var bytes: [UInt8] = []
        for _ in 0..<Int.random(in: 0...120, using: &generator) {
            bytes += units.randomElement(using: &generator)!
        }
        for _ in 0..<faults {
            guard let index = bytes.indices.randomElement(using: &generator) else { break }
            bytes[index] = UInt8.random(in: 0...255, using: &generator)
        }
        return bytes
    }

    private struct Seen: Equatable, Sendable {
        let text: String
        let isKnownASCII: Bool
        let place: LineFramer.Line
    }

    private struct Outcome: Equatable, Sendable {
        let lines: [Seen]
        let ending: String?
        let lineCount: Int?
        let byteCount: Int?
    }

    private static func read(
        _ stream: InputStream, _ policy: TextPolicy, _ options: LineReader<[Seen]>.Options
    ) -> Outcome {
        var report: HandoffReport<LineReader<[Seen]>.Output>?
        let reader = LineReader(
            stream, text: policy, into: [Seen](), on: DispatchQueue(label: "lines"), options: options
        ) { seen, line, place in
            seen.append(Seen(text: line, isKnownASCII: line.utf8Span.isKnownASCII, place: place))
        }
        reader.start { report = $0 }
        #expect(runToTheEnd())
        let output = report?.output
        return Outcome(
            lines: output?.value ?? [], ending: report?.ending.name, lineCount: output?.lineCount,
            byteCount: output?.byteCount)
    }

    private static func agree(_ bytes: [UInt8], chunkSizes: [Int]) async throws {
        let file = try TemporaryFile(bytes)
        let cuts: [LineReader<[Seen]>.Options] = [
            .init(), .init(terminator: .lineFeed), .init(terminator: .carriageReturnLineFeed),
            .init(terminator: .bytes([0xA9])), .init(lineLimit: 7, overflow: .split),
            .init(lineLimit: 7, overflow: .truncate), .init(lineLimit: 30, overflow: .fail),
        ]
        try await onItsOwnThread {
            for policy in [TextPolicy.repair, .report] {
                for (var cut, size) in cuts.flatMap({ cut in chunkSizes.map { (cut, $0) } }) {
                    cut.limits = HandoffLimits(chunkSize: size, bytesInFlight: 3 * size)
                    let expected = read(InputStream(data: bytes), policy, cut)
                    let isSame = read(InputStream(path: file.path), policy, cut) == expected
                    #expect(isSame, "\(bytes), \(cut), \(policy)")
                }
            }
        }
    }

    @Test(arguments: [0, 1, 3])
    func `lines of a file are those of any stream, valid UTF-8 or not`(faults: Int) async throws {
        var generator = SeededGenerator(seed: 7)
        for _ in 0..<3 {
            let bytes = Self.text(&generator, faults: faults) + Array("\r\nmore\r\n".utf8)
            try await Self.agree(bytes, chunkSizes: [1, 2, 3, 7, 64, 1000])
        }
    }

    @Test func `lines of a file are those of any stream, even thousands in a chunk`() async throws {
        let bytes = Array(String(repeating: "é\nab\n\n日\n", count: 1000).utf8)
        try await Self.agree(bytes, chunkSizes: [1 << 14, 1 << 20])
    }

    @Test func `a line counts and compares as any other string of its characters does`() async throws {
        let lines = [
            "plain text, longer than a small string", "café, café, café, longer than a small string",
        ]
        let bytes = Array(lines.map { $0 + "\n" }.joined().utf8)
        let seen = try await onItsOwnThread { Self.read(InputStream(data: bytes), .report, .init()).lines }
        #expect(seen.map(\.text.utf16.count) == lines.map(\.utf16.count))
        #expect(seen.map(\.isKnownASCII) == [true, false])
        #expect(seen.last?.text == lines[1].replacing("é", with: "e\u{301}"))
    }
}
