import Glibc
import Synchronization
import SystemPackage

/// Reads a pipe, FIFO, terminal or other device that epoll(7) watches.
///
/// A pipe is opened again as non-blocking, because every process that shares the open file may set or clear
/// `O_NONBLOCK` at any time. Others, and a pipe that cannot be opened again, are read in a way that does not block, or
/// else after poll(2), which closing the stream can end. The latter can block if another reader takes the bytes in between.
final class DescriptorInput: InputBackend {
    private let given: SharedDescriptor
    /// The descriptor that is read: the stream's own, or the given one. Only the latter is watched.
    private let target: SharedDescriptor
    private let waiting = DescriptorWait()
    /// Whether a read may be tried without poll(2): the pipe is the stream's own, or the kernel may support `RWF_NOWAIT`,
    /// as it does for pipes since Linux 6.5.
    private let canTry = Atomic(true)

    /// Whether EIO is the end: that of a pseudo-terminal's master that no process has open on the other side.
    private let endsAtHangUp: Bool

    init(_ given: SharedDescriptor, endsAtHangUp: Bool = false) {
        (self.given, self.endsAtHangUp) = (given, endsAtHangUp)
        target = given.reopenedForReading() ?? given
    }

    var descriptor: SharedDescriptor? { given }

    func close() throws(Errno) {
        waiting.end()
        closeDescriptor()
    }

    func closeDescriptor() {
        given.close()
        target.close()
    }

    func isReady() -> Bool { given.isReady(for: CInt(POLLIN)) }

    /// The kernel reports readiness.
    func prepare() -> Availability { .waiting }

    @inline(__always)
    func readNow(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer? {
        guard canTry.load(ordering: .relaxed) else { return nil }
        // The descriptor cannot be closed during the call: closing the stream takes the engine's lock first.
        if let transfer = try attempt(target.number, &buffer) { return transfer }
        return canTry.load(ordering: .relaxed) ? Transfer(count: 0) : nil
    }

    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        while true {
            let transfer = try given.use { (number) throws(Errno) -> Transfer? in
                guard try waiting.wait(for: CInt(POLLIN), of: number) else { throw .canceled }
                return try readTarget(&buffer)
            }
            if let transfer { return transfer }
        }
    }

    func readIfReady(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        guard isReady() else { return Transfer(count: 0) }
        return try given.use { (_) throws(Errno) in try readTarget(&buffer) } ?? Transfer(count: 0)
    }

    /// The given descriptor is in use meanwhile: closing it waits for the read.
    private func readTarget(_ buffer: inout MutableRawSpan) throws(Errno) -> Transfer? {
        try target.use { (number) throws(Errno) in try attempt(number, &buffer) }
    }

    /// Nil if no bytes are available, or none can be read before poll(2) reports them.
    @inline(__always)
    private func attempt(_ number: CInt, _ buffer: inout MutableRawSpan) throws(Errno) -> Transfer? {
        do throws(Errno) {
            let count =
                if target === given, canTry.load(ordering: .relaxed) {
                    try SystemCall.readNow(number, into: &buffer)
                } else {
                    try SystemCall.read(number, into: &buffer)
                }
            guard let count, count > 0 || !given.awaitsFirstWriter else { return nil }
            return Transfer(count: count, isAtEnd: count == 0)
        } catch {
            switch error {
            case .resourceTemporarilyUnavailable: return nil
            case .notSupportedOnSocket:  // EOPNOTSUPP
                canTry.store(false, ordering: .relaxed)
                return nil
            case .ioError where endsAtHangUp: return Transfer(count: 0, isAtEnd: true)
            default: throw error
            }
        }
    }
}

/// Writes a pipe, FIFO, terminal or other device that epoll(7) watches.
///
/// A pipe or terminal is opened again as non-blocking, because every user of the open file shares
/// `O_NONBLOCK`, and may set or clear it at any time. If that fails and the descriptor is blocking, each write
/// is limited to what poll(2) guarantees, and can still block when another writer fills the pipe in between.
final class DescriptorOutput: BufferedOutput {
    private let given: SharedDescriptor
    let target: SharedDescriptor
    private let waiting = DescriptorWait()
    /// The limit of one write(2); none for a non-blocking descriptor.
    private let writeLimit: Int
    private let slot = WriteBufferSlot()

    init(_ given: SharedDescriptor) {
        self.given = given
        if let own = given.reopenedForWriting() {
            (target, writeLimit) = (own, .max)
        } else if given.isNonBlocking {
            (target, writeLimit) = (given, .max)
        } else {
            // POSIX guarantees PIPE_BUF bytes for a pipe, and nothing for a terminal or a device.
            (target, writeLimit) = (given, given.isPipe ? Int(PIPE_BUF) : 1)
        }
    }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        slot.open(for: engine) { Self.client }
        return self
    }

    func close() throws(Errno) {
        waiting.end()
        _ = slot.close()?.finish(.stop, within: WriteBuffer.Limits())
        closeDescriptor()
    }

    func closeDescriptor() {
        target.close()
        given.close()
    }

    // MARK: Writing

    var buffer: WriteBuffer? { slot.buffer }

    var failure: Errno? { buffer?.failure }

    func send(_ bytes: RawSpan) throws(Errno) -> Int {
        try target.use { (number) throws(Errno) in
            if writeLimit != .max, !target.isReady(for: CInt(POLLOUT)) { return 0 }
            return try Self.write(bytes.extracting(first: writeLimit), to: number)
        }
    }

    func checkPeer() throws(Errno) { if target.isPipe { throw .brokenPipe } }

    func waitForRoom(in buffer: WriteBuffer?) throws(Errno) {
        if let buffer { return buffer.waitForRoom() }
        let isOpen = try target.use { (number) throws(Errno) in
            try waiting.wait(for: CInt(POLLOUT), of: number)
        }
        if !isOpen { throw .canceled }
    }

    private static func write(_ bytes: RawSpan, to number: CInt) throws(Errno) -> Int {
        do throws(Errno) { return try SystemCall.write(bytes, to: number) } catch {
            if error == .resourceTemporarilyUnavailable { return 0 }
            throw error
        }
    }

    private static let client = WriteBuffer.Client { (descriptor, bytes) throws(Errno) in
        try descriptor.use { (number) throws(Errno) in try write(bytes, to: number) }
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? { key == .writeBufferSizeKey ? slot.limit : nil }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool {
        // With a blocking descriptor the buffer's sender could block in write(2).
        guard key == .writeBufferSizeKey, writeLimit == .max, let size = nonNegativeInteger(value) else {
            return false
        }
        slot.setLimit(size) { Self.client }
        return true
    }
}
