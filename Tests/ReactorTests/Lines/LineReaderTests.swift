import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

private typealias Reader = LineReader<[Seen]>
private typealias Report = HandoffReport<LineOutput<[Seen]>>

private struct Seen: Equatable, Sendable {
    let text: String
    let isKnownASCII: Bool
    let place: LineFramer.Line
}

enum ReadingStop: String, CaseIterable {
    case stopped, failed, cancelled
}

/// Reads `stream`, and ends the reading in the given way at a line.
private func read(
    _ stream: InputStream, _ policy: TextPolicy = .repair, chunkSize: Int = 5,
    _ framer: LineFramer = LineFramer(),
    _ stop: ReadingStop? = nil, after count: Int = .max
) -> Report? {
    var report: Report?
    let limits = HandoffLimits(chunkSize: chunkSize, bytesInFlight: 2 * chunkSize)
    let handle = Shared<Reader?>(nil)
    defer { handle.value = nil }
    let reader = Reader(
        stream, text: policy, into: [], on: DispatchQueue(label: "lines"), framer: framer, limits: limits
    ) { seen, line, place in
        seen.append(Seen(text: line, isKnownASCII: line.utf8Span.isKnownASCII, place: place))
        guard seen.count == count else { return }
        switch stop {
        case .stopped: throw StopProcessing()
        case .failed: throw Errno.outOfRange
        case .cancelled: handle.wait { $0 }.cancel()
        case nil: break
        }
    }
    handle.value = reader
    reader.start { report = $0 }
    return runToTheEnd() ? report : nil
}

extension HandoffReport where Output == LineOutput<[Seen]> {
    fileprivate var texts: [String] { output.value.map(\.text) }
}

@Suite(.runLoop) struct LineReaderTests {
    @Test(arguments: [1, 2, 3, 5, 100])
    func `lines come numbered, with or without a last terminator`(chunkSize: Int) throws {
        let stream = InputStream(data: Array("ab\r\n\ncafé\nend".utf8))
        let report = try #require(read(stream, chunkSize: chunkSize))
        #expect(report.texts == ["ab", "", "café", "end"] && report.ending.name == "finished")
        #expect(report.output.value.map(\.place.number) == [1, 2, 3, 4])
        #expect(report.output.value.map(\.place.offset) == [0, 4, 5, 11])
        #expect(report.output.lineCount == 4 && report.output.byteCount == 14)
        #expect(report.output.longestLine == 5)
    }

    @Test(arguments: [
        (LineFramer.Overflow.fail, ["ok"]), (.truncate, ["ok", "much ", "end"]),
        (.split, ["ok", "much ", "too l", "ong", "end"]),
    ])
    func `a line too long fails the reader or is cut`(overflow: LineFramer.Overflow, lines: [String]) throws {
        let framer = LineFramer(terminator: .bytes([45, 45]), limit: 5, overflow: overflow)
        let report = try #require(
            read(InputStream(data: Array("ok--much too long--end".utf8)), .repair, framer))
        #expect(report.texts == lines)
        let error = report.ending.error as? LineFramer.LineTooLong
        if overflow == .fail {
            #expect(error?.number == 2 && error?.offset == 4 && error?.limit == 5)
        } else {
            #expect(error == nil && report.output.lineCount == 3 && report.output.longestLine == 13)
        }
    }

    @Test(arguments: [nil, .stopped, .failed, .cancelled] as [ReadingStop?])
    func `the value is finished on the queue after the last line, unless reading ends before`(
        stop: ReadingStop?
    ) {
        let (queue, handle) = (DispatchQueue(label: "lines"), Shared<LineReader<[String]>?>(nil))
        var report: HandoffReport<LineOutput<[String]>>?
        let reader = LineReader(
            InputStream(data: Array("a\nb".utf8)), text: .repair, into: [String](), on: queue
        ) {
            lines, line, _ in
            lines.append(line)
            if line == "b", stop == .stopped { throw StopProcessing() }
            if line == "b", stop == .cancelled { handle.wait { $0 }.cancel() }
        } atEnd: { lines in
            dispatchPrecondition(condition: .onQueue(queue))
            if stop == .failed { throw Errno.noSpace }
            lines.append("end")
        }
        handle.value = reader
        reader.start { report = $0 }
        #expect(runToTheEnd() && report?.ending.name == stop?.rawValue ?? "finished")
        handle.value = nil
        #expect(report?.output.value == (stop == nil ? ["a", "b", "end"] : ["a", "b"]))
        #expect(report?.ending.errno == (stop == .failed ? .noSpace : nil))
    }
}

/// Where to continue after a reading that ended early.
@Suite(.runLoop) struct LineReaderContinuationTests {
    private static let text = Array("ab\r\nmuch too long\n\nzß水🎏水ß\nfits\r\n0123456789abcdef".utf8)

    @Test(arguments: [LineFramer.Overflow.truncate, .split], ReadingStop.allCases)
    func `continuing at the byte count loses no line`(overflow: LineFramer.Overflow, stop: ReadingStop) throws
    {
        let (file, framer) = (try TemporaryFile(Self.text), LineFramer(limit: 5, overflow: overflow))
        for chunkSize in [1, 2, 3, 7, 100] {
            let whole = try #require(read(InputStream(data: Self.text), chunkSize: chunkSize, framer))
            for count in 1..<whole.texts.count {
                let stream = chunkSize == 7 ? InputStream(path: file.path) : InputStream(data: Self.text)
                let first = try #require(read(stream, chunkSize: chunkSize, framer, stop, after: count))
                #expect(first.ending.name == stop.rawValue && first.texts.count == count)
                let rest = InputStream(data: Self.text.dropFirst(first.output.byteCount))
                let second = try #require(read(rest, chunkSize: chunkSize, framer))
                #expect(first.texts + second.texts == whole.texts, "\(chunkSize), \(count)")
                #expect(first.output.lineCount + second.output.lineCount == whole.output.lineCount)
            }
        }
    }

    @Test(arguments: [LineFramer.Overflow.truncate, .split, .fail])
    func `when cancelled, the counts end at the last delivery`(overflow: LineFramer.Overflow) throws {
        let pipe = try TestPipe()
        try pipe.writeEnd.writeAll("ab\n0123456789ab".utf8)
        var report: HandoffReport<LineOutput<[String]>>?
        let reader = LineReader(
            InputStream(descriptor: pipe.readEnd), into: [String](), on: DispatchQueue(label: "lines"),
            framer: LineFramer(limit: overflow == .fail ? 100 : 5, overflow: overflow),
            limits: HandoffLimits(chunkSize: 3, bytesInFlight: 6)
        ) { lines, line, _ in lines.append(line.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }) }
        reader.start { report = $0 }
        waitUntil {
            RunLoop.current.poll()
            return reader.progress.byteCount == 15
        }
        reader.cancel()
        #expect(runToTheEnd() && report?.ending.name == "cancelled" && report?.output.lineCount == 1)
        let isSplit = overflow == .split
        #expect(report?.output.value == (isSplit ? ["ab", "01234", "56789"] : ["ab"]))
        #expect(report?.output.byteCount == (isSplit ? 13 : 3))
    }

    @Test(arguments: [LineFramer.Overflow.fail, .truncate, .split], [1, 2, 3, 5, 100])
    func `reading continues at a line that is not UTF-8`(
        overflow: LineFramer.Overflow, chunkSize: Int
    ) throws {
        let framer = LineFramer(limit: 5, overflow: overflow)
        let lines: [[UInt8]] = [Array("ab\r\n".utf8), [0x63, 0xFF, 0x64, 10], Array("end\n".utf8)]
        for bad in lines.indices {
            var ordered = lines
            ordered.swapAt(1, bad)
            let (bytes, before) = (Array(ordered.joined()), Array(ordered[..<bad].joined()))
            let file = try TemporaryFile(bytes)
            for stream in [InputStream(data: bytes), InputStream(path: file.path)] {
                let report = try #require(read(stream, .fail, chunkSize: chunkSize, framer))
                let error = report.ending.error as? InvalidText
                #expect(error?.number == bad + 1 && error?.offset == before.count + 1)
                #expect(report.output.lineCount == bad && report.output.byteCount == before.count)
                let rest = InputStream(data: bytes.dropFirst(before.count))
                #expect(read(rest, chunkSize: chunkSize, framer)?.texts.first == "c\u{FFFD}d")
            }
        }
    }

    @Test(arguments: 1...20)
    func `a piece that is not UTF-8 ends the reading, and its line does not count`(size: Int) throws {
        let stream = InputStream(data: Array("ab\n0123456789abc".utf8) + [0xFF, 10])
        let report = try #require(
            read(stream, .fail, chunkSize: size, .init(limit: 5, overflow: .split)))
        let error = report.ending.error as? InvalidText
        #expect(error?.number == 2 && error?.offset == 16)
        #expect(report.texts == ["ab", "01234", "56789"])
        #expect(report.output.lineCount == 1 && report.output.byteCount == 13)
    }

    @Test func `a line counts as delivered when the closure throws InvalidText for it`() {
        var report: HandoffReport<LineOutput<Int>>?
        LineReader(
            InputStream(data: [97, 10, 0xFF, 10, 98, 10]), into: 0, on: DispatchQueue(label: "lines")
        ) { count, line, place in
            count += 1
            _ = try place.text(line, .fail)
        }.start { report = $0 }
        #expect(runToTheEnd() && report?.output.lineCount == 2 && report?.output.byteCount == 4)
    }
}

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
        return bytes + Array("\r\nmore\r\n".utf8)
    }

    private static let cuts: [LineFramer] = [
        .init(), .init(terminator: .lineFeed), .init(terminator: .carriageReturnLineFeed),
        .init(terminator: .bytes([0xA9])), .init(limit: 7, overflow: .split),
        .init(limit: 7, overflow: .truncate), .init(limit: 30, overflow: .fail),
    ]

    private static func agree(_ bytes: [UInt8], chunkSizes: [Int]) throws {
        let file = try TemporaryFile(bytes)
        for policy in [TextPolicy.repair, .fail] {
            for (cut, size) in cuts.flatMap({ cut in chunkSizes.map { (cut, $0) } }) {
                let expected = try #require(read(InputStream(data: bytes), policy, chunkSize: size, cut))
                let report = try #require(read(InputStream(path: file.path), policy, chunkSize: size, cut))
                let isSame =
                    report.output.value == expected.output.value
                    && report.output.lineCount == expected.output.lineCount
                    && report.output.byteCount == expected.output.byteCount
                    && report.ending.name == expected.ending.name
                #expect(isSame, "\(bytes), \(cut), \(policy)")
            }
        }
    }

    @Test(arguments: [0, 1, 3])
    func `lines of a file are those of any stream, valid UTF-8 or not`(faults: Int) throws {
        var generator = SeededGenerator(seed: 7)
        try Self.agree(Self.text(&generator, faults: faults), chunkSizes: [1, 3, 64])
    }

    @Test func `lines of a file are those of any stream, even thousands in a chunk`() throws {
        try Self.agree(
            Array(String(repeating: "é\nab\n\n日\n", count: 1000).utf8), chunkSizes: [1 << 14, 1 << 20])
    }

    @Test func `a line counts and compares as any other string of its characters does`() throws {
        let lines = [
            "plain text, longer than a small string", "café, café, café, longer than a small string",
        ]
        let bytes = Array(lines.map { $0 + "\n" }.joined().utf8)
        let seen = try #require(read(InputStream(data: bytes), .fail, chunkSize: 1000)).output.value
        #expect(seen.map(\.text.utf16.count) == lines.map(\.utf16.count))
        #expect(seen.map(\.isKnownASCII) == [true, false])
        #expect(seen.last?.text == lines[1].replacing("é", with: "e\u{301}"))
    }
}
