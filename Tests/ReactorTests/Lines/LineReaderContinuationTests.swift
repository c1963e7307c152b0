import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Where to continue after a reading that ended early.
@Suite(.runLoop) struct LineReaderContinuationTests {
    private typealias Options = LineReader<[String]>.Options
    private typealias Report = HandoffReport<LineReader<[String]>.Output>

    enum Stop: CaseIterable {
        case stop, fail, cancel
    }

    private struct Refusal: Error {}

    private static let text = Array("ab\r\nmuch too long\n\nzß水🎏水ß\nfits\r\n0123456789abcdef".utf8)

    private static func options(_ overflow: LineFramer.Overflow, _ chunkSize: Int) -> Options {
        Options(
            lineLimit: 5, overflow: overflow,
            limits: HandoffLimits(chunkSize: chunkSize, bytesInFlight: 2 * chunkSize))
    }

    /// Reads `bytes` until `count` deliveries have come.
    private static func read(
        _ bytes: some Collection<UInt8>, _ options: Options, _ how: Stop = .stop, after count: Int = .max
    ) -> Report? {
        let handle = Shared<LineReader<[String]>?>(nil)
        var report: Report?
        let reader = LineReader(
            InputStream(data: bytes), into: [String](), on: DispatchQueue(label: "lines"), options: options
        ) { lines, line, _ in
            lines.append(String(decoding: line.bytes, as: UTF8.self))
            guard lines.count == count else { return }
            switch how {
            case .stop: throw StopProcessing()
            case .fail: throw Refusal()
            case .cancel: handle.value?.cancel()
            }
        }
        handle.value = reader
        reader.start { report = $0 }
        #expect(runToTheEnd())
        handle.value = nil
        return report
    }

    @Test(arguments: [LineFramer.Overflow.truncate, .split], Stop.allCases)
    func `continuing at the byte count loses and repeats no line`(
        overflow: LineFramer.Overflow, how: Stop
    ) throws {
        for chunkSize in [1, 2, 3, 7, 100] {
            let options = Self.options(overflow, chunkSize)
            let whole = try #require(Self.read(Self.text, options)).output
            for count in 1..<whole.value.count {
                let first = try #require(Self.read(Self.text, options, how, after: count)).output
                let rest = Self.text.dropFirst(first.byteCount)
                let second = try #require(Self.read(rest, options)).output
                #expect(first.value.count == count)
                #expect(first.value + second.value == whole.value, "\(chunkSize), \(count)")
                #expect(first.lineCount + second.lineCount == whole.lineCount)
            }
        }
    }

    @Test(arguments: [LineFramer.Overflow.truncate, .split, .fail])
    func `cancelled in a line that has not ended, the counts end at the last delivery`(
        overflow: LineFramer.Overflow
    ) async throws {
        try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()
            defer { try? pipe.writeEnd.close() }
            try pipe.writeEnd.writeAll(Array("ab\n0123456789ab".utf8))
            var options = Self.options(overflow, 3)
            if overflow == .fail { options.lineLimit = 100 }
            var report: Report?
            let reader = LineReader(
                InputStream(descriptor: pipe.readEnd, closeWhenDone: true), into: [String](),
                on: DispatchQueue(label: "lines"), options: options
            ) { lines, line, _ in lines.append(String(decoding: line.bytes, as: UTF8.self)) }
            reader.start { report = $0 }
            waitUntil {
                RunLoop.current.poll()
                return reader.progress.byteCount == 15
            }
            reader.cancel()
            #expect(runToTheEnd())
            #expect(report?.ending.name == "cancelled")
            #expect(report?.output.lineCount == 1)
            let isSplit = overflow == .split
            #expect(report?.output.value == (isSplit ? ["ab", "01234", "56789"] : ["ab"]))
            #expect(report?.output.byteCount == (isSplit ? 13 : 3))
        }
    }

    @Test(arguments: [LineFramer.Overflow.fail, .truncate, .split], [1, 2, 3, 5, 100])
    func `a line that is not UTF-8 is not delivered, and continuing there delivers it`(
        overflow: LineFramer.Overflow, chunkSize: Int
    ) async throws {
        let lines: [[UInt8]] = [Array("ab\r\n".utf8), [0x63, 0xff, 0x64, 10], Array("end\n".utf8)]
        try await onItsOwnThread { () -> Void in
            for bad in 0..<lines.count {
                var ordered = lines
                ordered.swapAt(1, bad)
                let bytes = Array(ordered.joined())
                let file = try TemporaryFile(bytes)
                let before = Array(ordered[..<bad].joined())
                for stream in [InputStream(data: bytes), InputStream(path: file.path)] {
                    let report = Self.readText(stream, .report, Self.options(overflow, chunkSize))
                    guard case .failed(let error as InvalidText) = report?.ending else {
                        Issue.record("\(report?.ending.name ?? "nothing")")
                        return
                    }
                    #expect(error.number == bad + 1)
                    #expect(report?.output.lineCount == bad)
                    #expect(report?.output.byteCount == before.count)
                    let rest = bytes.dropFirst(before.count)
                    let next = Self.readText(
                        InputStream(data: rest), .repair, Self.options(overflow, chunkSize))
                    #expect(next?.output.value.first == "c\u{FFFD}d")
                }
            }
        }
    }

    @Test func `a piece that is not UTF-8 leaves its line uncounted`() async throws {
        let bytes = Array("ab\n0123456789abc".utf8) + [0xff, 10]
        try await onItsOwnThread {
            let report = Self.readText(InputStream(data: bytes), .report, Self.options(.split, 4))
            #expect(report?.output.value == ["ab", "01234", "56789"])
            #expect(report?.output.lineCount == 1)
            #expect(report?.output.byteCount == 13)
        }
    }

    @Test func `a line counts as delivered when the closure throws InvalidText for it`() async throws {
        let report = try await onItsOwnThread { () -> HandoffReport<LineReader<Int>.Output>? in
            var report: HandoffReport<LineReader<Int>.Output>?
            let reader = LineReader(
                InputStream(data: [97, 10, 0xff, 10, 98, 10]), into: 0, on: DispatchQueue(label: "lines")
            ) { count, line, place in
                count += 1
                _ = try place.text(line, .report)
            }
            reader.start { report = $0 }
            return runToTheEnd() ? report : nil
        }
        #expect(report?.output.lineCount == 2)
        #expect(report?.output.byteCount == 4)
    }

    private static func readText(_ stream: InputStream, _ policy: TextPolicy, _ options: Options) -> Report? {
        var report: Report?
        let reader = LineReader(
            stream, text: policy, into: [String](), on: DispatchQueue(label: "lines"), options: options
        ) { lines, line, _ in lines.append(line) }
        reader.start { report = $0 }
        return runToTheEnd() ? report : nil
    }
}

extension RawSpan {
    /// A copy of the bytes.
    fileprivate var bytes: [UInt8] { withUnsafeBytes { Array($0) } }
}
