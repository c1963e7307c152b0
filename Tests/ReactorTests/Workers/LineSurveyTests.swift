import CReactorLinux
import Dispatch
import SystemPackage
import Testing

@testable import Reactor

@Suite struct LineSurveyTests {
    enum Finder: CaseIterable {
        case best, baseline, portable

        func callAsFunction(_ bytes: [UInt8], _ wanted: UInt8 = 10, capacity: Int) -> [LineEnd] {
            let ends = [UInt32](unsafeUninitializedCapacity: capacity) { room, count in
                let target = room.baseAddress
                count =
                    switch self {
                    case .best: reactor_find_lines(bytes, bytes.count, wanted, target, capacity)
                    case .baseline: reactor_find_lines_baseline(bytes, bytes.count, wanted, target, capacity)
                    case .portable: reactor_find_lines_portable(bytes, bytes.count, wanted, target, capacity)
                    }
            }
            return ends.map { LineEnd($0) }
        }
    }

    /// Lines of mostly well-formed text, here and there with a byte that is none.
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

    @Test(arguments: Finder.allCases, [0, 0, 1, 5])
    func `of each line it is known whether it is ASCII, and never wrongly that it is text`(
        finder: Finder, faults: Int
    ) {
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<3000 {
            let bytes = Self.text(&generator, faults: faults)
            var start = 0
            let ends = finder(bytes, capacity: bytes.count)
            #expect(ends.map(\.offset) == bytes.indices.filter { bytes[$0] == 10 })
            for end in ends {
                let line = bytes[start..<end.offset]
                #expect(end.isASCII == line.allSatisfy { $0 < 128 }, "\(bytes) from \(start)")
                let isText = String(validating: line, as: UTF8.self) != nil
                #expect(isText || !end.isText, "\(bytes) from \(start)")
                #expect(end.isText || !isText || faults > 0, "\(bytes) from \(start)")
                start = end.offset + 1
            }
        }
    }

    @Test(arguments: Finder.allCases)
    func `what a chunk's ends have cut off does not spoil the lines between`(finder: Finder) {
        let text = Array("🎏日é\nplain\né\n日\n🎏é日".utf8)
        for first in 0..<9 {
            for last in text.count - 9..<text.count {
                let chunk = Array(text[first...last])
                let ends = finder(chunk, capacity: 10)
                #expect(ends.map(\.offset) == [9, 15, 18, 22].map { $0 - first })
                #expect(ends.dropFirst().map(\.isText) == [true, true, true])
                #expect(ends.map(\.isASCII) == [first == 9, true, false, false])
            }
        }
    }

    @Test(arguments: Finder.allCases)
    func `no more ends are written than there is room for`(finder: Finder) {
        for count in [10, 64, 100, 300] {
            let bytes = [UInt8](repeating: 10, count: count)
            for capacity in 1...count {
                #expect(finder(bytes, capacity: capacity).map(\.offset) == Array(0..<capacity))
            }
        }
    }

    @Test func `a survey of more lines than it holds tells how far it reaches`() {
        let bytes = Array(String(repeating: "é\n", count: 3000).utf8)
        var survey = LineSurvey(upTo: bytes.count)
        survey.update(bytes.span.bytes, endingAt: 10)
        #expect(survey.count == LineSurvey.capacity)
        #expect(survey.reach == LineSurvey.capacity * 3)
        let fewer = Array(bytes[..<100])
        survey.update(fewer.span.bytes, endingAt: 10)
        #expect(survey.count == 33)
        #expect(survey.reach == 100)
    }

    // MARK: Files, which are surveyed, beside what is read on the loop, which is not

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
    func `lines of a file are those of any stream, whatever is known of them`(faults: Int) async throws {
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<3 {
            let bytes = Self.text(&generator, faults: faults) + Array("\r\nmore\r\n".utf8)
            try await Self.agree(bytes, chunkSizes: [1, 2, 3, 7, 64, 1000])
        }
    }

    @Test func `lines of a file are those of any stream, be there thousands in a chunk`() async throws {
        let bytes = Array(String(repeating: "é\nab\n\n日\n", count: 1000).utf8)
        try await Self.agree(bytes, chunkSizes: [1 << 14, 1 << 20])
    }
}
