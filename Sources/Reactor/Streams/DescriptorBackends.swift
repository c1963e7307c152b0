import CReactorLinux
import Glibc
import Synchronization
import SystemPackage

/// A pipe, FIFO, terminal or other device that epoll(7) watches, to be read.
///
/// A read waits in poll(2), where closing the stream can end it, and not in read(2); unless the descriptor is blocking,
/// the kernel knows no `RWF_NOWAIT` for it, and another reader takes what poll(2) has found.
final class DescriptorInput: InputBackend {
    private let holder: DescriptorHolder
    private let waiting = DescriptorWait()
    /// Whether a read may be tried without asking poll(2) first: the descriptor is non-blocking, or the kernel takes
    /// `RWF_NOWAIT` for it, as it does for pipes since Linux 6.5.
    private let canTry = Atomic(true)
    private let isNonBlocking: Bool

    init(_ holder: DescriptorHolder) {
        self.holder = holder
        isNonBlocking = holder.isNonBlocking
    }

    var descriptor: DescriptorHolder? { holder }

    func close() throws(Errno) {
        waiting.end()
        holder.close()
    }

    func isReady() -> Bool { holder.isReady(for: CInt(POLLIN)) }

    /// The kernel tells.
    func prepare() -> Availability { .waiting }

    func readNow(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer? {
        guard canTry.load(ordering: .relaxed) else { return nil }
        // The descriptor is not closed under the call: closing the stream takes the engine's lock first.
        return try unsafe attempt(holder.number, buffer)
    }

    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        while true {
            let transfer = try holder.use { (number) throws(Errno) -> Transfer? in
                guard try waiting.wait(for: CInt(POLLIN), of: number) else { throw .canceled }
                return try unsafe attempt(number, buffer)
            }
            if let transfer { return transfer }
        }
    }

    /// Nil if there is nothing to read, or nothing that can be read without waiting first.
    private func attempt(
        _ number: CInt, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Transfer? {
        guard let count = try unsafe read(number, buffer) else { return nil }
        if count == 0, holder.awaitsFirstWriter { return nil }
        return Transfer(count: count, isAtEnd: count == 0)
    }

    /// Nil if there is nothing to read, or nothing that can be read without waiting first.
    private func read(_ number: CInt, _ buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Int? {
        do throws(Errno) {
            guard !isNonBlocking, canTry.load(ordering: .relaxed) else {
                return try SystemCall.make { unsafe Glibc.read(number, buffer.baseAddress, buffer.count) }
            }
            return try SystemCall.make { unsafe reactor_read_now(number, buffer.baseAddress, buffer.count) }
        } catch {
            switch error {
            case .resourceTemporarilyUnavailable: return nil
            case .notSupportedOnSocket:  // EOPNOTSUPP
                canTry.store(false, ordering: .relaxed)
                return nil
            default: throw error
            }
        }
    }
}

/// A pipe, FIFO, terminal or other device that epoll(7) watches, to be written.
///
/// A blocking descriptor is opened again as non-blocking, because `O_NONBLOCK` is shared with every user of the open
/// file. If that fails, each write is limited to what poll(2) guarantees, and can still block when another writer fills
/// the pipe in between.
final class DescriptorOutput: KernelOutput {
    private let given: DescriptorHolder
    let target: DescriptorHolder
    private let waiting = DescriptorWait()
    /// The most that one write(2) may try; without limit for a non-blocking descriptor.
    private let mostBytes: Int
    private let slot = WriteBufferSlot()

    init(_ given: DescriptorHolder) {
        self.given = given
        if given.isNonBlocking {
            (target, mostBytes) = (given, .max)
        } else if let own = given.reopenedForWriting() {
            (target, mostBytes) = (own, .max)
        } else {
            // For a pipe POSIX promises that much; for a terminal or a device it promises nothing.
            (target, mostBytes) = (given, given.isPipe ? Int(PIPE_BUF) : 1)
        }
    }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        slot.open(for: engine) { Self.transport }
        return self
    }

    func close() throws(Errno) {
        waiting.end()
        _ = slot.close()?.finish(.stop, stallTimeout: WriteBuffer.defaultStallTimeout)
        target.close()
        given.close()
    }

    // MARK: Writing

    var buffer: WriteBuffer? { slot.buffer }

    var fault: Errno? { buffer?.fault }

    func send(_ bytes: UnsafeRawBufferPointer) throws(Errno) -> Int {
        try target.use { (number) throws(Errno) in
            if mostBytes != .max, !target.isReady(for: CInt(POLLOUT)) { return 0 }
            return try unsafe Self.write(bytes.prefix(mostBytes), to: number)
        }
    }

    func checkPeer() throws(Errno) { if target.isPipe { throw .brokenPipe } }

    func waitForRoom() throws(Errno) {
        let isOpen = try target.use { (number) throws(Errno) in
            try waiting.wait(for: CInt(POLLOUT), of: number)
        }
        if !isOpen { throw .canceled }
    }

    private static func write(_ bytes: Slice<UnsafeRawBufferPointer>, to number: CInt) throws(Errno) -> Int {
        let bytes = unsafe UnsafeRawBufferPointer(rebasing: bytes)
        do throws(Errno) {
            return try SystemCall.make { unsafe reactor_write(number, bytes.baseAddress, bytes.count) }
        } catch {
            if error == .resourceTemporarilyUnavailable { return 0 }
            throw error
        }
    }

    private static let transport = unsafe WriteBuffer.Transport { (descriptor, bytes) throws(Errno) in
        try descriptor.use { (number) throws(Errno) in try unsafe write(bytes[...], to: number) }
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? { key == .writeBufferSizeKey ? slot.limit : nil }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        // A sender of the buffer's bytes could wait in write(2) for a descriptor that blocks.
        guard key == .writeBufferSizeKey, mostBytes == .max, let size = nonNegativeInteger(value) else {
            return false
        }
        slot.setLimit(size) { Self.transport }
        return true
    }
}
