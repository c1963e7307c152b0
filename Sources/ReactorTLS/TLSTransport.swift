import CReactorOpenSSL
import Glibc
import Reactor
import SystemPackage

/// TLS between a connection and its socket, by OpenSSL.
///
/// Its channel holds the lock of its state during every call. What a program's verifier is called with in such a call holds no
/// reference to this.
final class TLSTransport: SecureSession {
    let context: TLSContext
    let verifier: TLSPeerVerifier?
    /// The name that the peer's certificate must be for.
    let peerName: String?
    /// The key that a session with the peer is kept under; nil if none is.
    let sessionKey: [UInt8]?
    /// The session that the handshake may resume.
    private(set) var offeredSession: TLSContext.Session?
    private let peer: String
    private let connection: OpenSSLConnection
    /// What OpenSSL reads and writes.
    var socket = SocketBytes()
    private var isEstablished = false
    private var hasEnded = false
    /// Why the connection has failed.
    private var failure: (any Error)?
    /// Clear bytes that OpenSSL takes only when it has received the rest of a message.
    private var held: [UInt8] = []

    /// - Parameter resumes: Whether `peer` names the peer. A descriptor's number does not.
    init(_ security: TLSSecurity, name: String?, peer: String, resumes: Bool) throws(TLSError) {
        let context = security.context
        (self.context, verifier, peerName) = (context, security.verifier, name)
        self.peer = peer
        let isClient = context.settings.role == .client
        sessionKey = isClient && resumes ? Array("\(peer) \(name ?? "")".utf8) : nil
        connection = try OpenSSLConnection(context.object)
        // OpenSSL uses the transport only during a call.
        connection.setTransport(self)
        connection.begin(as: context.settings.role)
        guard isClient else { return }
        try context.setName(name, of: connection, peer)
        if let sessionKey, let session = context.session(with: sessionKey) {
            offeredSession = session
            connection.resume(session.object)
        }
    }

    deinit { if isEstablished, failure == nil { connection.markShutDown() } }

    /// The transport of a connection that calls back.
    ///
    /// `@safe`: every connection is one's, which outlives it.
    @safe
    static func of(_ ssl: OpaquePointer?) -> TLSTransport {
        unsafe CallbackContext.object(reactor_tls_data(ssl))
    }

    // MARK: The handshake

    func take(_ received: [UInt8]) { socket.take(received) }

    func continueHandshake(over wire: SocketWire) throws -> Bool {
        if failure == nil {
            isEstablished = makeHandshakeStep(over: wire)
            if isEstablished { verifyResumption() }
        }
        if failure == nil, let sendError = socket.sendError, !isPeerDone {
            // The peer may have said why it has gone.
            if !isEstablished { _ = makeHandshakeStep(over: wire) }
            failure = failure ?? sendError
        }
        if let failure { throw failure }
        return isEstablished
    }

    /// Returns whether the handshake is complete.
    private func makeHandshakeStep(over wire: SocketWire) -> Bool {
        let outcome = perform(over: wire) { connection.shakeHands() }
        if outcome.error == SSL_ERROR_ZERO_RETURN { failure = TLSError(.closedInHandshake, peer: peer) }
        return outcome.code == 1
    }

    /// Whether the peer has completed the handshake before this: a server of TLS 1.3 sends nothing but tickets
    /// last. A client that has gone without them may have sent bytes.
    private var isPeerDone: Bool {
        isEstablished && context.settings.role == .server && connection.version == TLS1_3_VERSION
    }

    /// Has the program decide on the peer of a resumed session, which OpenSSL does not verify again.
    private func verifyResumption() {
        guard let verifier, connection.isResumed else { return }
        let chain = connection.peerCertificates
        // A server may have accepted a client without.
        guard !chain.isEmpty else { return }
        let evidence = TLSPeerVerifier.Evidence(chain, name: peerName, verification: connection.verification)
        let isAccepted = verifier.accepts(evidence)
        // The program may have left an error, as in the verification.
        ERR_clear_error()
        if isAccepted { return }
        failure = TLSError(evidence.failure ?? .rejected, peer: peer)
    }

    // MARK: Receiving

    /// Fills the buffer: one record at a time would make an event for each.
    func receive(into buffer: inout MutableRawSpan, over wire: SocketWire) throws -> Int? {
        if let failure { throw failure }
        return try buffer.withAddress { start, size -> Result<Int?, any Error> in
            var count = 0
            let (_, error) = perform(over: wire, receiving: .clearBytes(size)) {
                while count < size {
                    let room = CInt(clamping: size - count)
                    let code = unsafe connection.read(into: start! + count, room)
                    guard code > 0 else { return code }
                    count += Int(code)
                }
                return 1
            }
            sendHeldIfPossible(over: wire)
            if count > 0 { return .success(count) }
            if let failure { return .failure(failure) }
            return .success(error == SSL_ERROR_ZERO_RETURN ? 0 : nil)
        }.get()
    }

    func canReceive(over wire: SocketWire, receives: Bool) -> Bool {
        // The peer's end may have come with bytes that were read.
        if failure != nil || connection.hasPeerEnded || connection.hasPending { return true }
        if !receives, socket.isEmpty { return false }
        let outcome = perform(over: wire, receiving: receives ? .clearBytes(0) : .nothing) {
            connection.peek()
        }
        sendHeldIfPossible(over: wire)
        return outcome.error != SSL_ERROR_WANT_READ
    }

    // MARK: Sending

    /// The most that is held: more than a program writes until the rest of a message arrives.
    private static let heldLimit = 1 << 20

    func send(_ bytes: RawSpan, over wire: SocketWire) throws {
        sendHeldIfPossible(over: wire)
        if let error = socket.sendError ?? failure { throw error }
        if held.isEmpty, canWrite(over: wire) { return try write(bytes, over: wire) }
        if let failure { throw failure }
        guard held.count + bytes.byteCount <= Self.heldLimit else { throw failIncomplete() }
        if held.isEmpty { try wire.setHolding(true) }
        held.append(bytes)
    }

    /// Fails because the peer has sent a part of a message, and the held bytes cannot be sent.
    private func failIncomplete() -> any Error {
        let error = TLSError(.protocolViolation("a message of the peer is incomplete"), peer: peer)
        failure = error
        return error
    }

    private func write(_ bytes: RawSpan, over wire: SocketWire) throws {
        let code = perform(over: wire, receiving: .nothing) { connection.write(bytes) }.code
        if code <= 0, failure == nil { recordFailure() }
        if let error = socket.sendError ?? failure { throw error }
    }

    /// Whether OpenSSL writes. It does not while it has received a part of a message of TLS 1.3, such as a
    /// ticket in two records.
    ///
    /// Receives the rest, and leaves what follows in the socket, where a thread may wait for it.
    private func canWrite(over wire: SocketWire) -> Bool {
        guard connection.isInHandshake else { return true }
        return perform(over: wire, receiving: .whatIsAsked) { connection.shakeHands() }.code == 1
    }

    func sendHeld(over wire: SocketWire) throws -> Bool {
        sendHeldIfPossible(over: wire)
        if let error = socket.sendError ?? failure { throw error }
        return held.isEmpty
    }

    /// Sends the held bytes. The next call throws an error of that.
    private func sendHeldIfPossible(over wire: SocketWire) {
        guard !held.isEmpty, failure == nil, socket.sendError == nil, canWrite(over: wire) else { return }
        held.withBytes { try? write($0, over: wire) }
        guard failure == nil, socket.sendError == nil else { return }
        held = []
        try? wire.setHolding(false)
    }

    /// Without close_notify the peer finds a truncation: after an error, or if it has sent a part of a message.
    func end(over wire: SocketWire) throws {
        guard isEstablished, !hasEnded else { return }
        if !held.isEmpty, try !sendHeld(over: wire) { throw failIncomplete() }
        guard failure == nil, canWrite(over: wire), socket.sendError == nil else { return }
        hasEnded = true
        // SSL_shutdown(3) returns 0, which counts as an error, while the peer has not ended its own output.
        _ = perform(over: wire, receiving: .nothing) { max(connection.shutDown(), 1) }
    }

    // MARK: Calls of OpenSSL

    /// Calls `body`, which calls OpenSSL, sends what that writes, and records why it fails.
    ///
    /// - Returns: The result, and OpenSSL's code for a result that is not positive.
    private func perform(
        over wire: SocketWire, receiving: SocketBytes.Receiving = .clearBytes(0), _ body: () -> CInt
    ) -> (code: CInt, error: CInt) {
        ERR_clear_error()
        socket.begin(over: wire, receiving)
        let code = body()
        let error = code > 0 ? SSL_ERROR_NONE : connection.error(code)
        switch error {
        case SSL_ERROR_NONE, SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN: break
        default: recordFailure()
        }
        socket.end()
        return (code, error)
    }

    /// Records why OpenSSL has failed, and empties its queue of errors, which it would take for another
    /// connection's.
    private func recordFailure() {
        if failure == nil { failure = reason(for: ERR_get_error()) }
        ERR_clear_error()
    }

    private func reason(for queued: UInt) -> any Error {
        if let error = socket.receiveError { return error }
        if socket.isAtEnd { return TLSError(isEstablished ? .truncated : .closedInHandshake, peer: peer) }
        if reactor_ssl_library(queued), reactor_error_reason(queued) == SSL_R_CERTIFICATE_VERIFY_FAILED {
            return TLSError(.init(verification: connection.verification, name: peerName ?? ""), peer: peer)
        }
        return TLSError(.init(queuedError: queued, isHandshake: !isEstablished), peer: peer)
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> (any Sendable)? {
        switch key {
        case .sslPeerTrustKey: connection.session
        case .sslPeerCertificatesKey: connection.peerCertificates
        default: nil
        }
    }
}
