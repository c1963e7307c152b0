import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct MemoryStreamTests {
    @Test func `the read that takes the last byte ends the stream`() {
        let recorder = Recorder()
        var counts: [Int] = []
        let input = InputStream(data: [1, 2, 3])
        recorder.onEvent = { _, event in
            if event == .hasBytesAvailable { counts.append(input.read(upTo: 2).count) }
        }
        input.start(recorder)
        RunLoop.current.serve { recorder.events.last == .endEncountered }
        #expect(counts == [2, 1] && !input.hasBytesAvailable && input.streamStatus == .atEnd)
        #expect(recorder.count(.hasBytesAvailable) == 2)
    }

    @Test func `a read longer than the data returns the data`() {
        let input = InputStream(data: pattern(100))
        input.open()
        var buffer = [UInt8](repeating: 0, count: 100)
        #expect(input.read(&buffer, maxLength: .max) == 100 && buffer == pattern(100))
        let other = InputStream(data: [1])
        other.open()
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

    @Test(arguments: [StreamKind.file, .pipe, .boundInput])
    func `getBuffer fails for bytes that are not in memory, and reads none`(kind: StreamKind) throws {
        let fixture = try Fixture(kind)
        let input = fixture.stream as! InputStream
        input.open()
        var (bytes, count): (UnsafeMutablePointer<UInt8>?, Int) = (nil, 0)
        #expect(!input.getBuffer(&bytes, length: &count) && bytes == nil)
        #expect(input.read(upTo: 10) == Fixture.content)
    }

    @Test func `writtenBytes is readable before, during and after writing`() {
        let output = OutputStream.toMemory()
        let key = Stream.PropertyKey.writtenBytesKey
        #expect(output.property(forKey: key) as? [UInt8] == [])
        output.open()
        output.write([1, 2])
        #expect(output.hasSpaceAvailable && output.writtenBytes == [1, 2])
        output.write([3])
        output.close()
        #expect(output.property(forKey: key) as? [UInt8] == [1, 2, 3] && output.writtenBytes == [1, 2, 3])
        #expect(!output.setProperty([UInt8](), forKey: key))
    }

    @Test func `a buffer accepts the bytes that fit, and is at its end when full`() {
        var memory = [UInt8](repeating: 0, count: 5)
        let recorder = Recorder()
        memory.withUnsafeMutableBufferPointer { memory in
            let output = OutputStream(toBuffer: memory.baseAddress!, capacity: 4)
            output.start(recorder)
            #expect(output.write([1, 2, 3]) == 3 && output.streamStatus == .open)
            var more: [UInt8] = [4, 5, 6]
            #expect(output.write(&more, maxLength: 3) == 1 && output.streamStatus == .atEnd)
            #expect(!output.hasSpaceAvailable && output.write(&more, maxLength: 3) == 0)
            RunLoop.current.serve { recorder.events.last == .endEncountered }
            RunLoop.current.poll()
            output.close()
        }
        #expect(memory == [1, 2, 3, 4, 0])
        #expect(recorder.events == [.openCompleted, .endEncountered])
    }

    @Test func `a buffer of no bytes is full from the start`() {
        var byte: UInt8 = 9
        for capacity in [0, -1] {
            let output = OutputStream(toBuffer: &byte, capacity: capacity)
            output.open()
            #expect(output.streamStatus == .atEnd && output.write([1]) == 0)
        }
        #expect(byte == 9)
    }

    /// The kernel maps a page when its first byte is written: this shows a write without reading the memory.
    @Test func `closing a buffer waits for a write on another thread, and no byte changes after that`()
        async throws
    {
        try await onItsOwnThread {
            let memory = try UntouchedMemory(byteCount: 64 << 20)
            let output = Carrier(memory.makeOutput())
            output.value.open()
            let writer = try JoinableThread(name: "writer") {
                _ = output.value.writeOnce([UInt8](repeating: 1, count: 64 << 20))
            }
            waitUntil { memory.touchedPages(among: 1) > 0 }
            output.value.close()
            let touched = memory.touchedPages()
            writer.join()
            #expect(memory.touchedPages() == touched)
        }
    }

    @Test func `a closed buffer accepts no bytes`() {
        var byte: UInt8 = 9
        let output = OutputStream(toBuffer: &byte, capacity: 1)
        output.open()
        output.close()
        #expect(output.writeOnce([1]) == -1 && byte == 9 && output.streamStatus == .closed)
    }
}

/// Memory that no page of has been written yet.
private final class UntouchedMemory: Sendable {
    private let address: Int
    private let byteCount: Int
    private var start: UnsafeMutableRawPointer { UnsafeMutableRawPointer(bitPattern: address)! }

    init(byteCount: Int) throws {
        let start = mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        guard let start, start != MAP_FAILED else { throw Errno(rawValue: errno) }
        madvise(start, byteCount, MADV_NOHUGEPAGE)
        (address, self.byteCount) = (Int(bitPattern: start), byteCount)
    }

    deinit { munmap(start, byteCount) }

    func makeOutput() -> OutputStream {
        OutputStream(toBuffer: start.assumingMemoryBound(to: UInt8.self), capacity: byteCount)
    }

    /// How many of the first `limit` pages have been written.
    func touchedPages(among limit: Int = .max) -> Int {
        let pageSize = sysconf(Int32(_SC_PAGESIZE))
        var pages = [UInt8](repeating: 0, count: min(limit, byteCount / pageSize))
        mincore(start, pages.count * pageSize, &pages)
        return pages.count { $0 & 1 != 0 }
    }
}
