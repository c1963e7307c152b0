import Glibc
import Synchronization
import SystemPackage

/// The transport of a connection, from before the handshake until both halves are closed.
///
/// Everything that it sends goes through the connection's write buffer if the socket has no room, so that a
/// transport never waits, and what it has sent arrives whatever the stream's loop does, also after the
/// stream was closed.
final class SecureChannel: Sendable {
    struct State {
        /// Nil until the handshake begins.
        var transport: (any SocketTransport)?
        /// Whether the client has shut the output down during the handshake.
        var isEnding = false
        /// How many threads wait for the socket to read from it.
        var readerCount = 0
    }

    private let security: any SocketSecurity
    /// Locked during every call of the transport.
    private let state = Mutex(State())
    /// Whether the handshake is complete. Until then no other thread locks the state, and so none waits for
    /// its steps.
    private let hasHandshake = Atomic(false)
    /// Announced when the handshake has ended, and when a half is closed.
    let changed = Condition()

    init(_ security: any SocketSecurity) { self.security = security }

    var isServer: Bool { security.isServer }

    var isEstablished: Bool { hasHandshake.load(ordering: .acquiring) }

    /// Calls `body` with the transport; nil during the handshake.
    private func withTransport<Result: Sendable>(_ body: (any SocketTransport, State) -> Result?) -> Result? {
        guard isEstablished else { return nil }
        return state.withLock { state in
            guard let transport = state.transport else { return nil }
            return body(transport, state)
        }
    }

    /// Continues the handshake, or begins it.
    ///
    /// - Returns: Whether it is complete.
    func continueHandshake(of connection: SocketConnection) throws -> Bool {
        let wire = connection.wire
        return try state.withLock { state in
            let transport = try state.transport ?? security.makeTransport(for: connection)
            state.transport = transport
            guard try transport.continueHandshake(over: wire) else { return false }
            if state.isEnding { transport.end(over: wire) }
            hasHandshake.store(true, ordering: .releasing)
            return true
        }
    }

    func property(_ key: Stream.PropertyKey) -> (any Sendable)? {
        withTransport { transport, _ in transport.property(key) }
    }

    // MARK: Receiving

    /// Receives clear bytes; nil if there are none, also during the handshake.
    func receive(
        into buffer: inout MutableRawSpan, for connection: SocketConnection
    ) throws(Errno) -> Int? {
        guard isEstablished else { return nil }
        let wire = connection.wire
        let result = state.withLock { state in
            Result { try state.transport?.receive(into: &buffer, over: wire) }
        }
        return try connection.check(result)
    }

    /// Whether clear bytes, the end or a failure have been received already.
    func hasReceived(for connection: SocketConnection) -> Bool {
        let wire = connection.wire
        return withTransport { transport, _ in transport.canReceive(over: wire, receives: false) } ?? false
    }

    /// Whether there are clear bytes, the end or a failure, in the socket too.
    ///
    /// Leaves the socket to a thread that waits for it: what is read here would not wake that.
    func canReceive(for connection: SocketConnection) -> Bool {
        let wire = connection.wire
        return withTransport { transport, state in
            state.readerCount == 0 && transport.canReceive(over: wire, receives: true)
        } ?? false
    }

    /// Calls `wait` unless there are clear bytes.
    func whileReading(
        for connection: SocketConnection, _ wait: () throws(Errno) -> Void
    ) throws(Errno) {
        let wire = connection.wire
        let hasReceived = state.withLock { state in
            state.readerCount += 1
            return state.transport?.canReceive(over: wire, receives: false) ?? false
        }
        defer { state.withLock { $0.readerCount -= 1 } }
        if !hasReceived { try wait() }
    }

    // MARK: Sending

    /// Sends all of `bytes`.
    func send(_ bytes: RawSpan, for connection: SocketConnection) throws(Errno) {
        let wire = connection.wire
        let result = state.withLock { state in Result { try state.transport?.send(bytes, over: wire) } }
        try connection.check(result)
    }

    /// Announces the end of the output, or does so after the handshake.
    ///
    /// - Returns: Whether the end is announced by now.
    @discardableResult
    func end(over wire: SocketWire) -> Bool {
        state.withLock { state in
            state.isEnding = true
            guard isEstablished else { return false }
            state.transport?.end(over: wire)
            return true
        }
    }

    /// Whether the client has shut the output down.
    var isEnding: Bool { state.withLock { $0.isEnding } }
}

extension SocketSecurity {
    fileprivate func makeTransport(for connection: SocketConnection) throws -> any SocketTransport {
        var host: String?
        switch connection.origin {
        case .host(let name, _): host = name
        case .address(let address): host = address.host
        case .descriptor: break
        }
        return try makeTransport(toHost: host, peer: connection.subject)
    }
}

// MARK: - The halves

/// The half of a protected connection that is read.
final class SecureInput: InputBackend {
    private let connection: SocketConnection
    private let channel: SecureChannel

    init(_ connection: SocketConnection, _ channel: SecureChannel) {
        (self.connection, self.channel) = (connection, channel)
    }

    var descriptor: SharedDescriptor? { connection.shared }

    var refusal: (any Error)? { connection.refusal }

    /// The handshake reads the socket until it is complete.
    var readinessSource: ReadinessSource { channel.isEstablished ? .kernelThroughBackend : .backend }

    func progress() -> Availability { connection.progress }

    func waitUntilOpen() { connection.waitUntilOpen(.input) }

    func close() throws(Errno) { connection.close(.input) }

    func closeDescriptor() { connection.closeDescriptor(.input) }

    func isReady() -> Bool { connection.fault != nil || channel.canReceive(for: connection) }

    /// A fault is reported after the bytes that arrived before it.
    var fault: Errno? {
        guard let fault = connection.faultForReading else { return nil }
        return channel.hasReceived(for: connection) || connection.shared.hasUnreadBytes ? nil : fault
    }

    /// The kernel reports bytes, unless they have been received already.
    func prepare() -> Availability {
        fault.map { .failed($0) } ?? (channel.hasReceived(for: connection) ? .ready : .waiting)
    }

    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        while true {
            if let transfer = try readIfReady(into: &buffer) { return transfer }
            if channel.isEstablished {
                try channel.whileReading(for: connection) { () throws(Errno) in
                    try connection.wait(for: CInt(POLLIN), .input)
                }
            } else {
                try connection.waitForHandshake(.input)
            }
        }
    }

    func readIfReady(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer? {
        let count: Int?
        do throws(Errno) { count = try channel.receive(into: &buffer, for: connection) } catch {
            connection.fail(error, on: .input)
            throw connection.fault ?? error
        }
        if let count, count > 0 { return Transfer(count: count) }
        if let fault = connection.fault { throw fault }
        return count == 0 ? Transfer(count: 0, isAtEnd: true) : nil
    }

    func property(_ key: Stream.PropertyKey) -> Any? { connection.property(key) }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { connection.setProperty(value, key) }

    var failedOperation: IOError.Operation { connection.failedOperation(of: .input) }

    var subject: String { connection.subject }
}

/// The half of a protected connection that is written.
///
/// A write is accepted while nothing waits for the socket, or less than the size of the write buffer.
final class SecureOutput: OutputBackend {
    /// What is protected in one step. It takes one system call to send, and is the most that a write adds
    /// to the write buffer beyond its size.
    private static let stepSize = 65_536

    private let connection: SocketConnection
    private let channel: SecureChannel

    init(_ connection: SocketConnection, _ channel: SecureChannel) {
        (self.connection, self.channel) = (connection, channel)
    }

    private var buffer: WriteBuffer? { connection.bufferSlot.buffer }

    var descriptor: SharedDescriptor? { connection.shared }

    var refusal: (any Error)? { connection.refusal }

    var readinessSource: ReadinessSource { .backend }

    func progress() -> Availability { connection.progress }

    func waitUntilOpen() { connection.waitUntilOpen(.output) }

    func close() throws(Errno) { connection.close(.output) }

    func closeDescriptor() { connection.closeDescriptor(.output) }

    var fault: Errno? { connection.fault }

    func isReady() -> Bool { fault != nil || channel.isEstablished && buffer?.hasRoom ?? true }

    func prepare() -> Availability {
        if let fault { return .failed(fault) }
        guard channel.isEstablished, let buffer else { return .waiting }
        return buffer.requestRoom() == .found ? .ready : .waiting
    }

    func checkRoom() throws(Errno) -> Room {
        if let fault { throw fault }
        guard channel.isEstablished, let buffer else { return .awaited }
        return buffer.requestRoom()
    }

    // MARK: Writing

    func write(_ bytes: RawSpan, isScheduled: Bool) throws(Errno) -> Transfer {
        while true {
            let transfer = try writeIfReady(bytes)
            if transfer.count > 0 { return transfer }
            guard channel.isEstablished else {
                if isScheduled { return transfer }
                try connection.waitForHandshake(.output)
                continue
            }
            guard let buffer else { throw .canceled }
            if isScheduled, buffer.limit > 0 { return transfer }
            buffer.waitForRoom()
        }
    }

    func writeIfReady(_ bytes: RawSpan) throws(Errno) -> Transfer {
        if let fault { throw fault }
        guard channel.isEstablished else { return Transfer(count: 0, room: .awaited) }
        guard let buffer else { throw .canceled }
        try buffer.checkOpen()
        var count = 0
        while count < bytes.byteCount, buffer.hasRoom {
            let step = bytes.extracting(droppingFirst: count).extracting(first: Self.stepSize)
            do throws(Errno) { try channel.send(step, for: connection) } catch {
                connection.fail(error, on: .output)
                throw connection.fault ?? error
            }
            count += step.byteCount
        }
        return Transfer(count: count, room: count == bytes.byteCount ? .assumed : buffer.requestRoom())
    }

    /// Announces the end, and shuts the socket down for writing after the buffered bytes.
    func shutDown() throws(Errno) {
        if let fault { throw fault }
        if channel.end(over: connection.wire) { try connection.shutDownSocket() }
    }

    var isFlushed: Bool { buffer?.isEmpty ?? true }

    func whenFlushed(_ callback: Callback) {
        if let buffer { buffer.whenFlushed(callback) } else { callback() }
    }

    func flush(until deadline: Deadline) throws(Errno) {
        try buffer?.flush(until: deadline)
        if let fault { throw fault }
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? { connection.property(key) }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { connection.setProperty(value, key) }

    var failedOperation: IOError.Operation { connection.failedOperation(of: .output) }

    var subject: String { connection.subject }
}
