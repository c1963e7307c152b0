import Synchronization
import SystemPackage

/// Bytes in memory, to be read.
@safe
final class MemoryInput: InputBackend {
    /// Allocated once and never moved: `getBuffer` hands out pointers into it.
    ///
    /// `nonisolated(unsafe)` is right because the memory is written before anybody else knows of it, and only
    /// read then.
    private nonisolated(unsafe) let bytes: UnsafeMutableRawBufferPointer
    private let consumed = Mutex(0)

    init(_ bytes: some Collection<UInt8>) {
        unsafe self.bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
        unsafe self.bytes.copyBytes(from: bytes)
    }

    deinit { unsafe bytes.deallocate() }

    func isReady() -> Bool { consumed.withLock { unsafe $0 < bytes.count } }

    var isAtEndWhenOpened: Bool { unsafe bytes.isEmpty }

    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        consumed.withLock { consumed in
            let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[consumed...].prefix(buffer.count))
            unsafe buffer.copyMemory(from: rest)
            consumed += rest.count
            return Transfer(count: rest.count, isAtEnd: unsafe consumed == bytes.count)
        }
    }

    func takeBuffer() -> UnsafeRawBufferPointer? {
        unsafe consumed.withLock { consumed in
            defer { consumed = unsafe bytes.count }
            return unsafe UnsafeRawBufferPointer(rebasing: bytes[consumed...])
        }
    }
}

/// Memory that grows with what is written.
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

/// Somebody else's memory, which is full one day.
@safe
final class BufferOutput: OutputBackend {
    /// `nonisolated(unsafe)` is right because the memory is only written while `used` is locked; that nobody
    /// else uses it meanwhile is what the caller has promised.
    private nonisolated(unsafe) let buffer: UnsafeMutableRawBufferPointer
    private let used = Mutex(0)

    init(_ buffer: UnsafeMutableRawBufferPointer) { unsafe self.buffer = buffer }

    func isReady() -> Bool { used.withLock { unsafe $0 < buffer.count } }

    var isAtEndWhenOpened: Bool { unsafe buffer.isEmpty }

    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        used.withLock { used in
            let fitting = unsafe UnsafeRawBufferPointer(rebasing: bytes.prefix(buffer.count - used))
            unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[used...]).copyMemory(from: fitting)
            used += fitting.count
            return unsafe Transfer(count: fitting.count, isAtEnd: used == buffer.count)
        }
    }
}
