import Synchronization
import SystemPackage

/// Reads a copy of bytes in memory.
///
/// `@safe`: only places below `byteCount` are read, and the memory lives as long as this object.
@safe
final class MemoryInput: InputBackend {
    /// Allocated once and never moved, because `getBuffer` returns pointers into it.
    ///
    /// `nonisolated(unsafe)` is correct: the memory is written in the initializer only.
    private nonisolated(unsafe) let memory: UnsafeRawBufferPointer
    private let byteCount: Int
    private let readCount = Mutex(0)

    init(_ bytes: some Collection<UInt8>) {
        byteCount = bytes.count
        let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: byteCount, alignment: 1)
        unsafe copy.copyBytes(from: bytes)
        unsafe memory = UnsafeRawBufferPointer(copy)
    }

    deinit { unsafe memory.deallocate() }

    func isReady() -> Bool { readCount.withLock { $0 < byteCount } }

    var isAtEndWhenOpened: Bool { byteCount == 0 }

    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        let range = take(limit: buffer.byteCount)
        let count = unsafe buffer.copy(memory.bytes.extracting(range))
        return Transfer(count: count, isAtEnd: range.upperBound == byteCount)
    }

    /// Moves the position back. False if `bytes` are not the last ones that were read, because a framer has left out a
    /// delimiter between them.
    func putBack(_ bytes: [UInt8]) -> Bool {
        readCount.withLock { readCount in
            let start = readCount - bytes.count
            guard start >= 0, unsafe memory[start..<readCount].elementsEqual(bytes) else { return false }
            readCount = start
            return true
        }
    }

    func takeBuffer() -> UnsafeRawBufferPointer? {
        unsafe UnsafeRawBufferPointer(rebasing: memory[take(limit: byteCount)])
    }

    /// The place of the next bytes, up to `limit`, which count as read.
    private func take(limit: Int) -> Range<Int> {
        readCount.withLock { readCount in
            let start = readCount
            readCount += min(limit, byteCount - start)
            return start..<readCount
        }
    }
}

/// Memory that grows with the bytes that are written.
final class MemoryOutput: OutputBackend {
    private let bytes = Mutex<[UInt8]>([])

    func isReady() -> Bool { true }

    func write(_ new: RawSpan, isScheduled: Bool) throws(Errno) -> Transfer {
        bytes.withLock { $0.append(new) }
        return Transfer(count: new.byteCount)
    }

    func property(_ key: Stream.PropertyKey) -> Any? {
        key == .writtenBytesKey ? bytes.withLock { $0 } : nil
    }
}

/// A caller-owned buffer of fixed capacity.
///
/// `@safe`: only places below `capacity` are written, and none after ``close()``.
@safe
final class BufferOutput: OutputBackend {
    /// `nonisolated(unsafe)` is correct: the memory is only written while `used` is locked. The caller
    /// guarantees that it is valid, and that nothing else uses it, until the stream is closed.
    private nonisolated(unsafe) let buffer: UnsafeMutableRawBufferPointer
    private let capacity: Int
    /// How many bytes have been written; nil once closed.
    private let used = Mutex<Int?>(0)

    init(_ buffer: UnsafeMutableRawBufferPointer) {
        unsafe self.buffer = buffer
        capacity = buffer.count
    }

    /// Waits for a write on another thread: after that the memory is the caller's again.
    func close() throws(Errno) { used.withLock { $0 = nil } }

    func isReady() -> Bool { used.withLock { $0 ?? capacity < capacity } }

    var isAtEndWhenOpened: Bool { capacity == 0 }
    var endError: Errno { .noSpace }
    var subject: String { "a buffer of \(capacity) bytes" }

    func write(_ bytes: RawSpan, isScheduled: Bool) throws(Errno) -> Transfer {
        try used.withLock { (used) throws(Errno) in
            guard let start = used else { throw .canceled }
            var room = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[start...]).mutableBytes
            let count = room.copy(bytes)
            used = start + count
            return Transfer(count: count, isAtEnd: start + count == capacity)
        }
    }
}
