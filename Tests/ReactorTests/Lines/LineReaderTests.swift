import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct LineReaderTests {
    private struct Seen: Equatable, Sendable {
        var text: String
        var number: Int
        var offset: Int
    }

    private typealias Report = HandoffReport<LineReader<[Seen]>.Output>

    private static func read(
        _ bytes: [UInt8], _ policy: TextPolicy = .repair, chunkSize: Int = 5,
        _ options: LineReader<[Seen]>.Options = .init()
    ) async throws -> Report? {
        var options = options
        options.limits = HandoffLimits(chunkSize: chunkSize, bytesInFlight: 2 * chunkSize)
        return try await onItsOwnThread { [options] in
            var report: Report?
            let reader = LineReader(
                InputStream(data: bytes), text: policy, into: [Seen](), on: DispatchQueue(label: "lines"),
                options: options
            ) { seen, line, place in
                seen.append(Seen(text: line, number: place.number, offset: place.offset))
            }
            reader.start { report = $0 }
            return runToTheEnd() ? report : nil
        }
    }

    @Test(arguments: [1, 2, 3, 5, 100])
    func `lines come numbered, with or without a last terminator`(chunkSize: Int) async throws {
        let report = try await Self.read(Array("ab\r\n\ncafé\nend".utf8), chunkSize: chunkSize)
        #expect(
            report?.output.value == [
                Seen(text: "ab", number: 1, offset: 0), Seen(text: "", number: 2, offset: 4),
                Seen(text: "café", number: 3, offset: 5), Seen(text: "end", number: 4, offset: 11),
            ])
        #expect(report?.output.lineCount == 4)
        #expect(report?.output.byteCount == 14)
        #expect(report?.output.longestLine == 5)
        #expect(report?.ending.name == "finished")
    }

    @Test func `invalid text is repaired`() async throws {
        let report = try await Self.read([97, 0xFF, 98, 10, 99])
        #expect(report?.output.value.map(\.text) == ["a\u{FFFD}b", "c"])
    }

    @Test func `invalid text is reported with its line and offset`() async throws {
        let report = try await Self.read([97, 10, 98, 0xFF, 10, 99], .report)
        #expect(report?.output.value.map(\.text) == ["a"])
        let error = try #require(report?.ending.error as? InvalidText)
        #expect(error.number == 2 && error.offset == 3)
    }

    @Test func `a line that is too long fails the reader after the lines before it`() async throws {
        let report = try await Self.read(Array("ok\nmuch too long\nok\n".utf8), .repair, .init(lineLimit: 5))
        #expect(report?.output.value.map(\.text) == ["ok"])
        let error = try #require(report?.ending.error as? LineFramer.LineTooLong)
        #expect(error.number == 2 && error.offset == 3 && error.limit == 5)
    }

    @Test(arguments: [
        (LineFramer.Overflow.truncate, ["ok", "much ", "end"]),
        (.split, ["ok", "much ", "too l", "ong", "end"]),
    ])
    func `a line that is too long is cut`(overflow: LineFramer.Overflow, lines: [String]) async throws {
        let report = try await Self.read(
            Array("ok\nmuch too long\nend".utf8), .repair, .init(lineLimit: 5, overflow: overflow))
        #expect(report?.output.value.map(\.text) == lines)
        #expect(report?.output.lineCount == 3)
        #expect(report?.output.longestLine == 13)
    }

    @Test func `lines may end in any bytes`() async throws {
        let report = try await Self.read(
            Array("a--b-c--".utf8), .repair, .init(terminator: .bytes(Array("--".utf8))))
        #expect(report?.output.value.map(\.text) == ["a", "b-c"])
    }

    @Test func `the output ends at the line where the closure stops, fails or cancels`() async throws {
        let file = try TemporaryFile(Array(String(repeating: "line\n", count: 100).utf8))
        for (how, name) in [
            ("stop", "stopped"), ("fail", "failed: \(Errno.outOfRange)"), ("cancel", "cancelled"),
        ] {
            let report = try await onItsOwnThread { () -> HandoffReport<LineReader<Int>.Output>? in
                let handle = Shared<LineReader<Int>?>(nil)
                var report: HandoffReport<LineReader<Int>.Output>?
                let reader = LineReader(path: file.path, into: 0, on: DispatchQueue(label: "lines")) {
                    count, _, place in
                    count += 1
                    guard place.number == 42 else { return }
                    if how == "stop" { throw StopProcessing() }
                    if how == "fail" { throw Errno.outOfRange }
                    handle.value?.cancel()
                }
                handle.value = reader
                reader.start { report = $0 }
                #expect(runToTheEnd())
                handle.value = nil
                return report
            }
            #expect(report?.ending.name == name)
            #expect(report?.output.value == 42)
            #expect(report?.output.lineCount == 42)
            #expect(report?.output.byteCount == 42 * 5)
        }
    }

    @Test(arguments: ["end", "stop", "fail", "cancel"])
    func `the value is finished on the queue after the last line, unless the reading ends before`(how: String)
        async throws
    {
        let report = try await onItsOwnThread {
            var report: HandoffReport<LineReader<[String]>.Output>?
            let queue = DispatchQueue(label: "lines")
            let handle = Shared<LineReader<[String]>?>(nil)
            let reader = LineReader(
                InputStream(data: Array("a\nb".utf8)), text: .repair, into: [String](), on: queue
            ) { lines, line, place in
                lines.append(line)
                if line == "b", how == "stop" { throw StopProcessing() }
                if line == "b", how == "fail" { throw Errno.outOfRange }
                if line == "b", how == "cancel" { handle.value?.cancel() }
            } atEnd: { lines in
                dispatchPrecondition(condition: .onQueue(queue))
                lines.append("end")
            }
            handle.value = reader
            reader.start { report = $0 }
            _ = runToTheEnd()
            handle.value = nil
            return report
        }
        #expect(report?.output.value == (how == "end" ? ["a", "b", "end"] : ["a", "b"]))
    }

    @Test func `an error at the end fails the reading, which keeps what the lines have made`() async throws {
        let report = try await onItsOwnThread {
            var report: HandoffReport<LineReader<Int>.Output>?
            let reader = LineReader(
                InputStream(data: Array("a\nb\n".utf8)), into: 0, on: DispatchQueue(label: "lines")
            ) { count, _, _ in
                count += 1
            } atEnd: { _ in
                throw Errno.noSpace
            }
            reader.start { report = $0 }
            _ = runToTheEnd()
            return report
        }
        #expect(report?.ending.error as? Errno == .noSpace)
        #expect(report?.output.value == 2)
    }

    @Test func `lines of a pipe come as they are written`() async throws {
        let report = try await onItsOwnThread { () -> HandoffReport<LineReader<[String]>.Output>? in
            let pipe = try FileDescriptor.pipe()
            let came = DispatchSemaphore(value: 0)
            var report: HandoffReport<LineReader<[String]>.Output>?
            let reader = LineReader(
                InputStream(descriptor: pipe.readEnd, closeWhenDone: true), text: .report, into: [String](),
                on: DispatchQueue(label: "lines")
            ) { lines, line, _ in
                lines.append(line)
                came.signal()
            }
            reader.start { report = $0 }
            DispatchQueue.global().async {
                for number in 0..<50 {
                    _ = try? pipe.writeEnd.writeAll(Array("line \(number)\n".utf8))
                    came.wait()
                }
                try? pipe.writeEnd.close()
            }
            return runToTheEnd() ? report : nil
        }
        #expect(report?.output.value == (0..<50).map { "line \($0)" })
    }

    @Test(arguments: 1...20)
    func `a piece that is not UTF-8 ends the reading before it, however the bytes arrive`(size: Int)
        async throws
    {
        let bytes = Array("abcdefg".utf8) + [0xff] + Array("hijklmnopqrs\n".utf8)
        let report = try await Self.read(
            bytes, .report, chunkSize: size, .init(lineLimit: 5, overflow: .split))
        let error = try #require(report?.ending.error as? InvalidText)
        #expect(error.number == 1 && error.offset == 7)
        #expect(report?.output.byteCount == 5)
        #expect(report?.output.value.map(\.text) == ["abcde"])
    }
}
