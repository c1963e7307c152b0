import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct MemoryStreamTests {
    @Test func `the read that takes the last byte ends the stream`() {
        let (input, recorder) = (InputStream(data: [1, 2, 3]), Recorder())
        var counts: [Int] = []
        recorder.onEvent = { _, event in
            if event == .hasBytesAvailable { counts.append(input.read(upTo: 2).count) }
        }
        input.start(recorder)
        RunLoop.current.serve { recorder.events.last == .endEncountered }
        #expect(counts == [2, 1] && !input.hasBytesAvailable && input.streamStatus == .atEnd)
    }

    @Test func `a read longer than the data returns the data`() {
        let (input, other) = (InputStream(data: pattern(100)), InputStream(data: [1]))
        for stream in [input, other] { stream.open() }
        var buffer = [UInt8](repeating: 0, count: 100)
        #expect(input.read(&buffer, maxLength: .max) == 100 && buffer == pattern(100))
        #expect(other.read(upTo: .max) == [1])
    }

    @Test func `getBuffer provides the remaining bytes without copying, and counts them as read`() throws {
        let input = InputStream(data: [1, 2, 3, 4])
        var (bytes, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        #expect(!input.getBuffer(&bytes, length: &count))
        input.open()
        _ = input.read(upTo: 1)
        #expect(input.getBuffer(&bytes, length: &count))
        #expect(Array(UnsafeBufferPointer(start: try #require(bytes), count: count)) == [2, 3, 4])
        #expect(input.streamStatus == .atEnd && input.read(upTo: 1).isEmpty)
        #expect(!input.getBuffer(&bytes, length: &count))
    }

    @Test func `getBuffer provides the bytes that a task has put back, too`() async throws {
        let input = InputStream(data: Array("one\ntwo\nthree".utf8))
        #expect(try await input.read(until: [10]) == Array("one".utf8))
        for try await line in input.lines {
            #expect(line == "two")
            break
        }
        var (bytes, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        #expect(synchronously { input.getBuffer(&bytes, length: &count) })
        #expect(Array(UnsafeBufferPointer(start: try #require(bytes), count: count)) == Array("three".utf8))
        #expect(input.streamStatus == .atEnd)
    }

    @Test(arguments: [StreamKind.file, .pipe, .boundInput])
    func `getBuffer fails for bytes that are not in memory, and reads none`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        let input = fixture.stream as! InputStream
        input.open()
        var (bytes, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        #expect(!input.getBuffer(&bytes, length: &count) && bytes == nil)
        #expect(input.read(upTo: 10) == Fixture.content)
    }

    @Test func `text, spans, arrays and any other bytes are written whole, and can be read at any time`() {
        let (output, array) = (OutputStream.toMemory(), [1, 2, 3] as [UInt8])
        let key = Stream.PropertyKey.writtenBytesKey
        #expect(output.property(forKey: key) as? [UInt8] == [])
        output.open()
        #expect(output.write(array.span.bytes) == 3 && output.write([4, 5]) == 2)
        #expect(output.hasSpaceAvailable && output.writtenBytes == [1, 2, 3, 4, 5])
        #expect(output.write(array.dropFirst()) == 2 && output.write((6...9).lazy.map { UInt8($0) }) == 4)
        #expect(output.write("żółw 東京\n") == 15 && output.write("") == 0)
        output.close()
        #expect(output.writtenBytes == [1, 2, 3, 4, 5, 2, 3, 6, 7, 8, 9] + Array("żółw 東京\n".utf8))
        #expect(output.property(forKey: key) as? [UInt8] == output.writtenBytes)
        #expect(!output.setProperty([UInt8](), forKey: key))
    }

    @Test func `a buffer accepts the bytes that fit, and is at its end when full`() {
        var memory = [UInt8](repeating: 0, count: 5)
        let recorder = Recorder()
        memory.withUnsafeMutableBufferPointer { memory in
            let output = OutputStream(toBuffer: memory.baseAddress!, capacity: 4)
            output.start(recorder)
            #expect(output.write([1, 2, 3]) == 3 && output.streamStatus == .open)
            // A part of a character.
            #expect(output.write("żó") == 1 && output.streamStatus == .atEnd)
            #expect(!output.hasSpaceAvailable && output.writeOnce([1]) == 0)
            RunLoop.current.serve { recorder.events.last == .endEncountered }
            RunLoop.current.settle()
            output.close()
            #expect(output.writeOnce([1]) == -1 && output.streamStatus == .closed)
        }
        #expect(memory == [1, 2, 3, "ż".utf8.first!, 0])
        #expect(recorder.events == [.openCompleted, .endEncountered])
    }

    @Test(arguments: [0, -1])
    func `a buffer of no bytes is full from the start`(capacity: Int) {
        var byte: UInt8 = 9
        let output = OutputStream(toBuffer: &byte, capacity: capacity)
        output.open()
        #expect(output.streamStatus == .atEnd && output.write([1]) == 0 && byte == 9)
    }

    @Test func `no write uses a buffer after close has returned on another thread`() throws {
        let (chunk, size) = (pattern(1 << 16), 1 << 22)
        let (memory, zeros) = (
            UnsafeMutablePointer<UInt8>.allocate(capacity: size), [UInt8](repeating: 0, count: size)
        )
        defer { memory.deallocate() }
        for _ in 0..<50 {
            let (output, started) = (Carrier(OutputStream(toBuffer: memory, capacity: size)), Countdown(1))
            output.value.open()
            let writer = try JoinableThread(name: "writer") {
                while output.value.writeOnce(chunk) > 0 { started.count() }
            }
            started.wait()
            output.value.close()
            memory.update(from: zeros, count: size)
            writer.join()
            #expect(memcmp(memory, zeros, size) == 0)
        }
    }
}

/// Wraps another stream, and delivers that one's events as its own.
private final class Doubling: InputStream, StreamDelegate {
    private let inner: InputStream

    init(_ inner: InputStream) {
        self.inner = inner
        super.init()
        inner.delegate = self
    }

    override var streamStatus: Stream.Status { inner.streamStatus }
    override func open() { inner.open() }
    override func close() { inner.close() }
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        inner.schedule(in: aRunLoop, forMode: mode)
    }
    override func remove(from aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        inner.remove(from: aRunLoop, forMode: mode)
    }
    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        let bytes = inner.read(upTo: len / 2)
        for (index, byte) in bytes.enumerated() { (buffer[2 * index], buffer[2 * index + 1]) = (byte, byte) }
        return 2 * bytes.count
    }
    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        delegate?.stream(self, handle: eventCode)
    }
}

@Suite(.runLoop) struct StreamSubclassTests {
    private let recorder = Recorder()

    @Test func `a subclass may override everything`() {
        let stream = ByteByByte([1, 2, 3, 4])
        recorder.onEvent = { [unowned recorder] stream, _ in
            recorder.bytes += (stream as! InputStream).read(upTo: 2)
            if recorder.bytes.count == 3 { stream.delegate = nil }
        }
        stream.start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.bytes == [1, 2, 3] && stream.read(upTo: 2) == [4])
    }

    @Test func `a subclass may wrap another stream`() {
        recorder.readsEverything(by: 4)
        let stream = Doubling(InputStream(data: [1, 2, 3]))
        stream.start(recorder)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(recorder.bytes == [1, 1, 2, 2, 3, 3])
    }
}
