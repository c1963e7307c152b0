import CReactorLinux
import Glibc
import Synchronization
import SystemPackage

/// A half of a connection.
///
/// The connection decides at each transfer whether its ``SecureChannel`` or its socket moves the bytes.
protocol SocketHalf: StreamBackend {
    static var half: SocketConnection.Half { get }
    var connection: SocketConnection { get }
}

extension SocketHalf {
    var refusal: (any Error)? { connection.refusal }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        connection.open(Self.half, for: engine)
        return self
    }

    func progress() -> Availability { connection.progress }

    func waitUntilOpen() { connection.waitUntilOpen(Self.half) }

    func close() throws(Errno) { connection.close(Self.half) }

    func closeDescriptor() { connection.closeDescriptor(Self.half) }

    func passCompleted() { connection.passCompleted() }

    func property(_ key: Stream.PropertyKey) -> Any? { connection.property(key) }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { connection.setProperty(value, key) }

    func transferFailed(_ error: Errno) -> Errno {
        connection.fail(error, on: Self.half)
        return connection.failure ?? error
    }

    var failedOperation: IOError.Operation { connection.failedOperation(of: Self.half) }

    var subject: String { connection.subject }
}

/// The half of a connection that is read.
final class SocketInput: SocketHalf, InputBackend {
    static var half: SocketConnection.Half { .input }

    let connection: SocketConnection

    init(_ connection: SocketConnection) { self.connection = connection }

    private var shared: SharedDescriptor { connection.shared }

    var descriptor: SharedDescriptor? { shared }

    func noteWait() { connection.noteWait() }

    /// A handshake reads the socket until it is complete.
    var readinessSource: ReadinessSource {
        guard connection.isAnnounced else { return .unannounced }
        guard let channel = connection.channel else { return .kernel }
        return channel.isEstablished ? .kernelThroughBackend : .backend
    }

    func isReady() -> Bool {
        if connection.failure != nil { return true }
        guard let channel = connection.channel else { return shared.isReady(for: CInt(POLLIN)) }
        return channel.canReceive(for: connection)
    }

    /// A fault is reported after the bytes that arrived before it.
    var failure: Errno? {
        guard let failure = connection.failureForReading else { return nil }
        return connection.hasReceived || connection.hasBytesBeforeFailure ? nil : failure
    }

    /// The kernel reports bytes, unless they have been received already.
    func prepare() -> Availability {
        failure.map { .failed($0) } ?? (connection.hasReceived ? .ready : .waiting)
    }

    @inline(__always)
    func readNow(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer? {
        guard connection.isPlain else { return nil }
        // The socket cannot be closed during the call: closing the stream takes the engine's lock first.
        let count = try SystemCall.receive(from: shared.number, into: &buffer)
        if connection.isOvertaken { throw .connectionAbort }
        if count == 0, let error = connection.errorAtEnd { throw error }
        if count == 0 { connection.noteEnd() }
        return Transfer(count: count ?? 0, isAtEnd: count == 0)
    }

    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        while true {
            let transfer = try readIfReady(into: &buffer)
            if !transfer.wouldWait { return transfer }
            try connection.waitForBytes()
        }
    }

    @inline(__always)
    func readIfReady(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        if connection.isRefused { throw .protocolNotSupported }
        if let failure { throw failure }
        let count: Int?
        do throws(Errno) { count = try connection.receive(into: &buffer) } catch {
            throw transferFailed(error)
        }
        if let count, count > 0 {
            if failure != nil { connection.notify(.input) }
            return Transfer(count: count)
        }
        if count == 0, let error = connection.errorAtEnd { throw transferFailed(error) }
        if let failure = connection.failure { throw failure }
        return Transfer(count: 0, isAtEnd: count == 0)
    }
}

/// The half of a connection that is written.
///
/// A protected write is accepted while nothing waits for the socket, or less than the size of the write
/// buffer.
final class SocketOutput: SocketHalf, BufferedOutput {
    static var half: SocketConnection.Half { .output }

    /// What is protected in one step. It takes one system call to send, and is the most that a write adds
    /// to the write buffer beyond its size.
    private static let stepSize = 65_536

    let connection: SocketConnection
    private let credit: RoomCredit

    init(_ connection: SocketConnection) {
        self.connection = connection
        credit = RoomCredit(ofNew: connection.isNew)
    }

    var target: SharedDescriptor { connection.shared }

    var readinessSource: ReadinessSource {
        guard connection.isAnnounced else { return .unannounced }
        return connection.channel == nil ? .kernelWhenFull : .backend
    }

    var roomSource: RoomSource {
        guard let channel = connection.channel else { return bufferOrKernel }
        guard channel.isEstablished, let buffer else { return .handshake }
        return .buffer(buffer)
    }

    // MARK: Writing

    var buffer: WriteBuffer? { connection.bufferSlot.buffer }

    var failure: Errno? { connection.failure }

    var stallLimits: WriteBuffer.Limits { connection.state.withLock { $0.limits } }

    @inline(__always)
    func writeNow(_ bytes: RawSpan) throws(Errno) -> Transfer? {
        guard connection.isPlain, !connection.bufferSlot.hasBuffer else { return nil }
        // As in ``SocketInput/readNow(into:)``.
        let count = try connection.whileSending { () throws(Errno) in
            try SystemCall.send(bytes, to: target.number)
        }
        if connection.isOvertaken { throw .connectionAbort }
        return Transfer(count: count, room: credit.use(count, of: bytes.byteCount))
    }

    func checkRoom() throws(Errno) -> Room {
        let isFree = connection.isPlain && !connection.bufferSlot.hasBuffer && credit.hasRoom(target.number)
        return isFree ? .found : try checkRoomInKernelOrBuffer()
    }

    @inline(__always)
    func accept(_ bytes: RawSpan, into buffer: WriteBuffer?) throws(Errno) -> Transfer {
        if let channel = connection.channel { return try protect(bytes, by: channel, into: buffer) }
        let transfer = try sendOrBuffer(bytes, into: buffer)
        if connection.isOvertaken { throw transferFailed(.connectionAbort) }
        return transfer
    }

    private func protect(
        _ bytes: RawSpan, by channel: SecureChannel, into given: WriteBuffer?
    ) throws(Errno) -> Transfer {
        if let failure { throw failure }
        guard channel.isEstablished else { return Transfer(count: 0, room: .awaited) }
        // A write that began before the handshake does not know the buffer that this has made.
        guard let buffer = given ?? buffer else { throw .canceled }
        try buffer.checkOpen()
        var count = 0
        while count < bytes.byteCount, buffer.hasRoom {
            let step = bytes.extracting(droppingFirst: count).extracting(first: Self.stepSize)
            do throws(Errno) { try channel.send(step, for: connection) } catch { throw transferFailed(error) }
            count += step.byteCount
        }
        return Transfer(count: count, room: count == bytes.byteCount ? .assumed : buffer.requestRoom())
    }

    func send(_ bytes: RawSpan) throws(Errno) -> Int {
        do throws(Errno) {
            let sent = try connection.send(bytes)
            credit.clear()
            connection.noteSent(sent, isBlocked: sent < bytes.byteCount)
            return sent
        } catch {
            throw transferFailed(error)
        }
    }

    func send(_ part: FilePart) -> Transfer? {
        guard failure == nil, connection.channel == nil, buffer?.isEmpty ?? true else { return nil }
        do throws(Errno) {
            let sent = try connection.whileSending { () throws(Errno) in
                try target.use { (number) throws(Errno) in
                    try SystemCall.send(part.range, of: part.file, to: number)
                }
            }
            guard sent != 0 else { return nil }
            credit.clear()
            if connection.isOvertaken { throw transferFailed(.connectionAbort) }
            connection.noteSent(sent ?? 0, isBlocked: sent == nil)
            return Transfer(count: sent ?? 0, room: sent == nil ? .full : .assumed)
        } catch {
            return nil
        }
    }

    /// As ``checkRoom()``, which may know of room that poll(2) does not report yet: an event for space is never denied.
    var hasKernelRoom: Bool { connection.isPlain && credit.isLeft || target.isReady(for: CInt(POLLOUT)) }

    func noteFull() { connection.noteSent(0, isBlocked: true) }

    func checkPeer() throws(Errno) {
        try connection.whileSending { () throws(Errno) in
            if let error = target.socketError { throw error }
        }
    }

    func mayAcceptNothing(_ buffer: WriteBuffer?) -> Bool {
        guard let channel = connection.channel else { return buffer?.isInUse ?? false }
        return !channel.isEstablished || buffer?.limit ?? 0 > 0
    }

    func waitForRoom(in buffer: WriteBuffer?) throws(Errno) {
        guard let channel = connection.channel else {
            if let buffer { return buffer.waitForRoom() }
            return try connection.wait(for: CInt(POLLOUT), .output)
        }
        guard channel.isEstablished else { return try connection.waitForHandshake(.output) }
        (buffer ?? self.buffer)?.waitForRoom()
    }

    /// Shuts the socket down for writing, after the buffered bytes and the announcement of the end.
    func shutDown() throws(Errno) {
        if let failure { throw failure }
        do throws(Errno) {
            if let channel = connection.channel, try !channel.end(over: connection.wire) { return }
        } catch {
            throw transferFailed(error)
        }
        try connection.shutDownSocket()
    }
}

/// How many bytes a socket has room for, so that most writes need not be followed by a poll(2).
///
/// poll(2) reports room when at least a third of a stream socket's send buffer is free (of a Unix-domain socket's, three
/// quarters). Only writes through this output take it up. A kernel that is short of memory may have less: then a write is
/// short, or waits. Changed with the engine locked, except by ``clear()``, which may come from a write on another thread.
private struct RoomCredit: ~Copyable, Sendable {
    private let bytes: Atomic<Int>
    /// Whether there has been a check: the first finds out no credit, as most connections need no second one.
    private let isChecked = Atomic(false)

    /// What the kernel may need for each write in addition to its bytes.
    private static let overhead = 4096

    /// - Parameter isNew: Whether nothing has been sent: then there is room for the first write.
    init(ofNew isNew: Bool) { bytes = Atomic(isNew ? 1 : 0) }

    /// Takes what a write of `wanted` bytes has used. Returns what is known of the room for the next one.
    @inline(__always)
    func use(_ count: Int, of wanted: Int) -> Room {
        let isFull = count < wanted
        let left = isFull ? 0 : max(0, bytes.load(ordering: .relaxed) - count - Self.overhead)
        bytes.store(left, ordering: .relaxed)
        return isFull ? .full : left > 0 ? .found : .assumed
    }

    func clear() { bytes.store(0, ordering: .relaxed) }

    var isLeft: Bool { bytes.load(ordering: .relaxed) > 0 }

    func hasRoom(_ socket: CInt) -> Bool {
        if isLeft { return true }
        guard (try? SystemCall.poll(socket, for: CInt(POLLOUT))) == CInt(POLLOUT) else { return false }
        if isChecked.load(ordering: .relaxed) {
            bytes.store(reactor_send_room(socket) - Self.overhead, ordering: .relaxed)
        }
        isChecked.store(true, ordering: .relaxed)
        return true
    }
}

extension SocketConnection {
    /// Whether nothing has been sent on the connection when it is opened.
    fileprivate var isNew: Bool { if case .descriptor(_, nil) = origin { false } else { true } }

    /// Sends the bytes of a write buffer, also after the connection was closed.
    var bufferClient: WriteBuffer.Client {
        WriteBuffer.Client(
            send: { [weak self] (socket, bytes) throws(Errno) in
                guard let self else { return try socket.send(bytes) }
                return try whileSending { () throws(Errno) in try socket.send(bytes) }
            },
            sent: { [weak self] count, isBlocked in self?.noteSent(count, isBlocked: isBlocked) },
            failed: { [weak self] error in self?.fail(error, on: .output) },
            end: { socket, ending, buffer in
                let limits = buffer.limits ?? WriteBuffer.Limits()
                switch ending {
                case .stop: socket.close()
                case .shutDown:
                    try? socket.shutDown()
                    GracefulClose.awaitAcknowledgement(on: socket, within: limits, engine: buffer.engine)
                case .close: GracefulClose.begin(socket, within: limits, engine: buffer.engine)
                case .reset: socket.reset()
                }
            })
    }
}
