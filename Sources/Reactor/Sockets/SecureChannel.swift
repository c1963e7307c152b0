import Glibc
import Synchronization
import SystemPackage

/// The secure session of a connection, from before the handshake until both halves are closed.
///
/// Everything that it sends goes through the connection's write buffer if the socket has no room, so that a
/// session never waits, and what it has sent arrives whatever the stream's loop does, also after the
/// stream was closed.
final class SecureChannel: Sendable {
    struct State {
        /// Nil until the handshake begins.
        var session: (any SecureSession)?
        /// Bytes of the handshake that were read before it.
        var earlyBytes: [UInt8] = []
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
    /// Locked during every call of the session. Before the handshake is complete only the thread that makes
    /// it locks the state, so that no other one waits for a step.
    private let state = Mutex(State())
    private let phase = Atomic(Phase.waiting)
    /// Whether the client has shut the output down.
    private let hasEnding = Atomic(false)
    /// Announced when the handshake has ended, and when a half is closed.
    let changed = EventCount()

    init(_ security: any SocketSecurity) { self.security = security }

    var isServer: Bool { security.isServer }

    var isEstablished: Bool { phase.load(ordering: .acquiring) == .complete }

    /// Whether the socket's bytes may be the handshake's.
    var hasBegun: Bool { phase.load(ordering: .sequentiallyConsistent) != .waiting }

    /// The error of a peer that has sent bytes before the handshake which the client has not read.
    func unprotectedBytes(from peer: String) -> any Error { security.unprotectedBytes(from: peer) }

    /// Makes bytes that were read before the handshake its first ones. They fail it if they are others.
    func setEarlyBytes(_ bytes: [UInt8]) { state.withLock { $0.earlyBytes = bytes } }

    /// Calls `body` with the session; nil during the handshake.
    private func withSession<Result: Sendable>(_ body: (any SecureSession, State) -> Result?) -> Result? {
        guard isEstablished else { return nil }
        return state.withLock { state in
            guard let session = state.session else { return nil }
            return body(session, state)
        }
    }

    /// Continues the handshake, or begins it.
    ///
    /// - Returns: Whether it is complete.
    func continueHandshake(of connection: SocketConnection) throws -> Bool {
        let wire = connection.wire
        return try state.withLock { state in
            if state.session == nil { phase.store(.begun, ordering: .sequentiallyConsistent) }
            let session = try state.session ?? security.makeSession(for: connection)
            if state.session == nil { session.take(exchange(&state.earlyBytes, with: [])) }
            state.session = session
            guard try session.continueHandshake(over: wire) else { return false }
            phase.store(.complete, ordering: .sequentiallyConsistent)
            // A thread that ends the output finds the handshake complete, or this finds its wish.
            if isEnding { try session.end(over: wire) }
            return true
        }
    }

    func property(_ key: Stream.PropertyKey) -> (any Sendable)? {
        withSession { session, _ in session.property(key) }
    }

    // MARK: Receiving

    /// Receives clear bytes; nil if there are none, also during the handshake.
    func receive(
        into buffer: inout MutableRawSpan, for connection: SocketConnection
    ) throws(Errno) -> Int? {
        guard isEstablished else { return nil }
        let wire = connection.wire
        let result = state.withLock { state in
            Result { try state.session?.receive(into: &buffer, over: wire) }
        }
        return try connection.check(result)
    }

    /// Whether clear bytes, the end or a failure have been received already.
    func hasReceived(for connection: SocketConnection) -> Bool {
        let wire = connection.wire
        return withSession { session, _ in session.canReceive(over: wire, receives: false) } ?? false
    }

    /// Whether there are clear bytes, the end or a failure, in the socket too.
    ///
    /// Leaves the socket to a thread that waits for it: what is read here would not wake that.
    func canReceive(for connection: SocketConnection) -> Bool {
        let wire = connection.wire
        return withSession { session, state in
            state.readerCount == 0 && session.canReceive(over: wire, receives: true)
        } ?? false
    }

    /// Calls `wait` unless there are clear bytes.
    func whileReading(
        for connection: SocketConnection, _ wait: () throws(Errno) -> Void
    ) throws(Errno) {
        let wire = connection.wire
        let hasReceived = state.withLock { state in
            state.readerCount += 1
            return state.session?.canReceive(over: wire, receives: false) ?? false
        }
        defer { state.withLock { $0.readerCount -= 1 } }
        if !hasReceived { try wait() }
    }

    // MARK: Sending

    /// How many bytes protecting `count` bytes adds at most: each record of 16 KiB has a head and a tail.
    static func overhead(of count: Int) -> Int { (count / 16_384 + 1) * 32 }

    /// Sends all of `bytes`.
    func send(_ bytes: RawSpan, for connection: SocketConnection) throws(Errno) {
        let wire = connection.wire
        let result = state.withLock { state in Result { try state.session?.send(bytes, over: wire) } }
        try connection.check(result)
    }

    /// Sends the bytes that the session keeps, if it may by now.
    ///
    /// - Returns: Whether it keeps none.
    func sendHeld(for connection: SocketConnection) throws(Errno) -> Bool {
        let wire = connection.wire
        let result = state.withLock { state in
            Result { try state.session?.sendHeld(over: wire) ?? true }
        }
        return try connection.check(result)
    }

    /// Announces the end of the output, or does so after the handshake. Throws if accepted bytes are lost.
    ///
    /// - Returns: Whether the end is announced by now.
    @discardableResult
    func end(over wire: SocketWire) throws(Errno) -> Bool {
        hasEnding.store(true, ordering: .sequentiallyConsistent)
        guard phase.load(ordering: .sequentiallyConsistent) == .complete else { return false }
        try wire.connection.check(state.withLock { state in Result { try state.session?.end(over: wire) } })
        return true
    }

    /// Whether the client has shut the output down.
    var isEnding: Bool { hasEnding.load(ordering: .sequentiallyConsistent) }
}

extension SocketSecurity {
    fileprivate func makeSession(for connection: SocketConnection) throws -> any SecureSession {
        var host: String?
        switch connection.origin {
        case .host(let name, _): host = name
        case .address(let address): host = address.host
        case .descriptor: break
        }
        return try makeSession(toHost: host, peer: connection.subject)
    }
}
