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
        /// How many threads wait for the socket to read from it.
        var readerCount = 0
    }

    /// How far the handshake has come.
    private enum Phase: UInt8, AtomicRepresentable {
        /// What was written before is sent first.
        case waiting
        case begun
        case complete
    }

    private let security: any SocketSecurity
    /// Locked during every call of the transport. Before the handshake is complete only the thread that makes
    /// it locks the state, so that no other one waits for a step.
    private let state = Mutex(State())
    private let phase = Atomic(Phase.waiting)
    /// Whether the client has shut the output down.
    private let hasEnding = Atomic(false)
    /// Announced when the handshake has ended, and when a half is closed.
    let changed = Condition()

    init(_ security: any SocketSecurity) { self.security = security }

    var isServer: Bool { security.isServer }

    var isEstablished: Bool { phase.load(ordering: .acquiring) == .complete }

    /// Whether the socket's bytes may be the handshake's.
    var hasBegun: Bool { phase.load(ordering: .sequentiallyConsistent) != .waiting }

    /// The error of a peer that has sent bytes before the handshake which the client has not read.
    func unprotectedBytes(from peer: String) -> any Error { security.unprotectedBytes(from: peer) }

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
            if state.transport == nil { phase.store(.begun, ordering: .sequentiallyConsistent) }
            let transport = try state.transport ?? security.makeTransport(for: connection)
            state.transport = transport
            guard try transport.continueHandshake(over: wire) else { return false }
            phase.store(.complete, ordering: .sequentiallyConsistent)
            // A thread that ends the output finds the handshake complete, or this finds its wish.
            if isEnding { transport.end(over: wire) }
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
        hasEnding.store(true, ordering: .sequentiallyConsistent)
        guard phase.load(ordering: .sequentiallyConsistent) == .complete else { return false }
        state.withLock { $0.transport?.end(over: wire) }
        return true
    }

    /// Whether the client has shut the output down.
    var isEnding: Bool { hasEnding.load(ordering: .sequentiallyConsistent) }
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
