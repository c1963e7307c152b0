import Synchronization
import SystemPackage

/// Reads a copy of bytes in memory.
@safe
final class MemoryInput: InputBackend {
    /// Allocated once and never moved, because `getBuffer` returns pointers into it.
    ///
    /// `nonisolated(unsafe)` is correct: the memory is written in the initialiser only.
    private nonisolated(unsafe) let start: UnsafeMutableRawPointer
    private let byteCount: Int
    private let readCount = Mutex(0)

    init(_ bytes: some Collection<UInt8>) {
        byteCount = bytes.count
        unsafe start = .allocate(byteCount: byteCount, alignment: 1)
        unsafe UnsafeMutableRawBufferPointer(start: start, count: byteCount).copyBytes(from: bytes)
    }

    deinit { unsafe start.deallocate() }

    func isReady() -> Bool { readCount.withLock { $0 < byteCount } }

    var isAtEndWhenOpened: Bool { byteCount == 0 }

    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        let (bytes, isLast) = unsafe take(limit: buffer.count)
        unsafe buffer.copyMemory(from: bytes)
        return Transfer(count: bytes.count, isAtEnd: isLast)
    }

    func takeBuffer() -> UnsafeRawBufferPointer? { unsafe take(limit: byteCount).bytes }

    /// The next bytes, up to `limit`, which count as read.
    private func take(limit: Int) -> (bytes: UnsafeRawBufferPointer, isLast: Bool) {
        unsafe readCount.withLock { readCount in
            let count = min(limit, byteCount - readCount)
            defer { readCount += count }
            let bytes = unsafe UnsafeRawBufferPointer(start: start + readCount, count: count)
            return unsafe (bytes, readCount + count == byteCount)
        }
    }
}

/// Memory that grows with the bytes that are written.
final class MemoryOutput: OutputBackend {
    private let bytes = Mutex<[UInt8]>([])

    func isReady() -> Bool { true }

    func write(_ new: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        bytes.withLock { unsafe $0.append(contentsOf: new) }
        return Transfer(count: new.count)
    }

    func property(_ key: Stream.PropertyKey) -> Any? {
        key == .writtenBytesKey ? bytes.withLock { $0 } : nil
    }
}

/// A caller-owned buffer of fixed capacity.
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

    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        try used.withLock { (used) throws(Errno) in
            guard let start = used else { throw .canceled }
            let count = min(bytes.count, capacity - start)
            unsafe buffer[start...].copyBytes(from: bytes.prefix(count))
            used = start + count
            return Transfer(count: count, isAtEnd: start + count == capacity)
        }
    }
}
