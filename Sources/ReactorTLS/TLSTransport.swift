import CReactorOpenSSL
import Glibc
import Reactor
import SystemPackage

/// TLS between a connection and its socket, by OpenSSL.
///
/// OpenSSL reads from memory of the thread that calls, which is filled from the socket, and writes to such
/// memory, which is sent at the end of the call. So a connection has memory of its own only for what
/// OpenSSL has not read yet.
///
/// `@unchecked Sendable` is right: its channel holds the lock of its state during every call, and what a
/// program's verifier is called with in such a call holds no reference to this. `deinit` runs when nothing
/// else has one.
@safe
final class TLSTransport: SecureSession, @unchecked Sendable {
    let context: TLSContext
    let verifier: TLSPeerVerifier?
    /// The name that the peer's certificate must be for.
    let peerName: String?
    /// What a session with the peer is kept for; nil if none is.
    let sessionKey: [UInt8]?
    /// The session that the handshake may resume.
    private(set) var offeredSession: TLSContext.Session?
    private let peer: String
    private let ssl: OpaquePointer
    /// Bytes of the socket that OpenSSL has not read.
    private var received: ArraySlice<UInt8> = []
    private var isEstablished = false
    private var hasEnded = false
    /// Whether the socket is at its end.
    private var isSocketAtEnd = false
    /// Why the socket could not be read.
    private var receiveError: Errno?
    /// Why bytes are lost that the peer should have got; nothing is sent after them.
    private var sendError: Errno?
    /// Why the connection has failed.
    private var failure: (any Error)?
    /// Clear bytes that OpenSSL takes only when it has received the rest of a message.
    private var held: [UInt8] = []
    /// The call under way; nil between calls.
    private var call: Call?

    /// What OpenSSL uses during one call.
    private struct Call {
        let memory: ThreadMemory
        let wire: SocketWire
        /// How many bytes to receive from the socket at once; nil for those that OpenSSL asks for.
        let receiveSize: Int?
        /// The bytes in the memory that OpenSSL has not read.
        var input = 0..<0
        /// The number of bytes in the memory that OpenSSL has written.
        var outputCount = 0
        /// Whether the socket has nothing left, as far as is known, or is not asked.
        var isDrained: Bool
    }

    /// - Parameter resumes: Whether `peer` names the peer. A descriptor's number does not.
    init(_ security: TLSSecurity, name: String?, peer: String, resumes: Bool) throws(TLSError) {
        let context = security.context
        let ssl = unsafe SSL_new(context.object.pointer)
        guard let ssl = unsafe ssl else { throw .settings("OpenSSL has no memory") }
        (self.context, verifier, self.peer) = (context, security.verifier, peer)
        (unsafe self.ssl, peerName) = unsafe (ssl, name)
        let isClient = context.settings.role == .client
        let isKept = isClient && resumes && context.settings.resumesSessions
        sessionKey = isKept ? Array("\(peer) \(name ?? "")".utf8) : nil
        // The SSL and its BIO are freed in `deinit`, and call nothing after a call of theirs has returned.
        let pointer = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe reactor_tls_set_data(ssl, pointer)
        let bio = unsafe BIO_new(TransportBIO.method)
        unsafe BIO_set_data(bio, pointer)
        unsafe BIO_set_init(bio, 1)
        unsafe SSL_set_bio(ssl, bio, bio)
        guard isClient else {
            unsafe SSL_set_accept_state(ssl)
            return
        }
        unsafe SSL_set_connect_state(ssl)
        unsafe try context.setName(name, of: ssl, peer)
        if let sessionKey, let session = context.session(with: sessionKey) {
            offeredSession = session
            unsafe SSL_set_session(ssl, session.object.pointer)
        }
    }

    deinit {
        // Without the marks OpenSSL considers the session broken, and does not resume it.
        if isEstablished, failure == nil {
            unsafe SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)
        }
        unsafe SSL_free(ssl)
    }

    static func of(_ ssl: OpaquePointer?) -> TLSTransport {
        unsafe Unmanaged<TLSTransport>.fromOpaque(reactor_tls_data(ssl)).takeUnretainedValue()
    }

    // MARK: The handshake

    func continueHandshake(over wire: SocketWire) throws -> Bool {
        if failure == nil {
            isEstablished = makeHandshakeStep(over: wire)
            if isEstablished { verifyResumption() }
        }
        if failure == nil, let sendError, !isPeerDone {
            // The peer may have said why it has gone.
            if !isEstablished { _ = makeHandshakeStep(over: wire) }
            failure = failure ?? sendError
        }
        if let failure { throw failure }
        return isEstablished
    }

    /// Returns whether the handshake is complete.
    private func makeHandshakeStep(over wire: SocketWire) -> Bool {
        let outcome = perform(over: wire) { unsafe SSL_do_handshake(ssl) }
        if outcome.error == SSL_ERROR_ZERO_RETURN { failure = TLSError(.closedInHandshake, peer: peer) }
        return outcome.code == 1
    }

    /// Whether the peer has completed the handshake before this: a server of TLS 1.3 sends nothing but tickets
    /// last. A client that has gone without them may have sent bytes.
    private var isPeerDone: Bool {
        unsafe isEstablished && context.settings.role == .server && SSL_version(ssl) == TLS1_3_VERSION
    }

    /// Has the program decide on the peer of a resumed session, which OpenSSL does not verify again.
    private func verifyResumption() {
        guard let verifier, unsafe SSL_session_reused(ssl) == 1 else { return }
        let (chain, code) = unsafe (TLSSession(of: ssl).peerCertificates, SSL_get_verify_result(ssl))
        // A server may have accepted a client without.
        guard !chain.isEmpty else { return }
        let evidence = TLSPeerVerifier.Evidence(chain, name: peerName, verification: CInt(code))
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
                    let code = unsafe SSL_read(ssl, start! + count, room)
                    guard code > 0 else { return code }
                    count += Int(code)
                }
                return 1
            }
            sendHeld(over: wire)
            if count > 0 { return .success(count) }
            if let failure { return .failure(failure) }
            return .success(error == SSL_ERROR_ZERO_RETURN ? 0 : nil)
        }.get()
    }

    func canReceive(over wire: SocketWire, receives: Bool) -> Bool {
        // The peer's end may have come with bytes that were read.
        let hasPeerEnded = unsafe SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN != 0
        if unsafe failure != nil || hasPeerEnded || SSL_pending(ssl) > 0 { return true }
        if !receives, received.isEmpty { return false }
        var byte: UInt8 = 0
        let outcome = perform(over: wire, receiving: receives ? .clearBytes(0) : .nothing) {
            unsafe SSL_peek(ssl, &byte, 1)
        }
        sendHeld(over: wire)
        return outcome.error != SSL_ERROR_WANT_READ
    }

    // MARK: Sending

    /// The most that is held: more than a program writes until the rest of a message arrives.
    private static let heldLimit = 1 << 20

    func send(_ bytes: RawSpan, over wire: SocketWire) throws {
        sendHeld(over: wire)
        if let error = sendError ?? failure { throw error }
        if held.isEmpty, canWrite(over: wire) { return try write(bytes, over: wire) }
        if let failure { throw failure }
        guard held.count + bytes.byteCount <= Self.heldLimit else {
            let error = TLSError(.protocolViolation("a message of the peer is incomplete"), peer: peer)
            failure = error
            throw error
        }
        bytes.withAddress { unsafe held += UnsafeRawBufferPointer(start: $0, count: $1) }
    }

    private func write(_ bytes: RawSpan, over wire: SocketWire) throws {
        let code = perform(over: wire, receiving: .nothing) {
            bytes.withAddress { start, count in unsafe SSL_write(ssl, start, CInt(count)) }
        }.code
        if code <= 0, failure == nil { recordFailure() }
        if let error = sendError ?? failure { throw error }
    }

    /// Whether OpenSSL writes. It does not while it has received a part of a message of TLS 1.3, such as a
    /// ticket in two records.
    ///
    /// Receives the rest, and leaves what follows in the socket, where a thread may wait for it.
    private func canWrite(over wire: SocketWire) -> Bool {
        guard unsafe SSL_in_init(ssl) == 1 else { return true }
        return perform(over: wire, receiving: .whatIsAsked) { unsafe SSL_do_handshake(ssl) }.code == 1
    }

    /// Sends the held bytes. The next call throws an error of that.
    private func sendHeld(over wire: SocketWire) {
        guard !held.isEmpty, failure == nil, sendError == nil, canWrite(over: wire) else { return }
        let bytes = held
        held = []
        bytes.withBytes { try? write($0, over: wire) }
    }

    /// Without close_notify the peer finds a truncation: after an error, or if it has sent a part of a message.
    func end(over wire: SocketWire) {
        guard isEstablished, !hasEnded, failure == nil, canWrite(over: wire) else { return }
        sendHeld(over: wire)
        guard failure == nil, sendError == nil else { return }
        hasEnded = true
        // SSL_shutdown(3) returns 0, which counts as an error, while the peer has not ended its own output.
        _ = perform(over: wire, receiving: .nothing) { unsafe max(SSL_shutdown(ssl), 1) }
    }

    // MARK: Calls of OpenSSL

    /// What is received at once where nothing else is known: a record with its head and its end.
    private static let recordSize = 16_384 + 256

    /// What a call receives from the socket.
    private enum Receiving {
        case nothing
        /// What OpenSSL asks for, and no byte more.
        case whatIsAsked
        /// As much as so many clear bytes need, and at least a record.
        case clearBytes(Int)

        var size: Int? {
            guard case .clearBytes(let count) = self else { return nil }
            // The overhead of a record is 22 bytes, or 29 in TLS 1.2.
            return min(max(count + count / 512 + 64, TLSTransport.recordSize), ThreadMemory.inputSize)
        }

        var isNothing: Bool { if case .nothing = self { true } else { false } }
    }

    /// Calls `body`, which calls OpenSSL, sends what that writes, and records why it fails.
    ///
    /// - Returns: The result, and OpenSSL's code for a result that is not positive.
    private func perform(
        over wire: SocketWire, receiving: Receiving = .clearBytes(0), _ body: () -> CInt
    ) -> (code: CInt, error: CInt) {
        ERR_clear_error()
        call = Call(
            memory: .current, wire: wire, receiveSize: receiving.size, isDrained: receiving.isNothing)
        let code = body()
        let error = unsafe code > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, code)
        switch error {
        case SSL_ERROR_NONE, SSL_ERROR_WANT_READ, SSL_ERROR_ZERO_RETURN: break
        default: recordFailure()
        }
        leaveThreadMemory()
        call = nil
        return (code, error)
    }

    /// Leaves the memory of the thread to other connections.
    func leaveThreadMemory() {
        flush()
        if call!.input.isEmpty { return }
        received = call!.memory.input(call!.input)[...]
        call!.input = 0..<0
    }

    /// OpenSSL wants up to `count` bytes of the socket. Returns 0 if there are none.
    func read(into target: UnsafeMutableRawPointer, _ count: Int) -> Int {
        if !received.isEmpty {
            let taken = min(count, received.count)
            unsafe received.withUnsafeBytes {
                unsafe target.copyMemory(from: $0.baseAddress!, byteCount: taken)
            }
            received = taken == received.count ? [] : received.dropFirst(taken)
            return taken
        }
        if call!.input.isEmpty { fill(asked: count) }
        let taken = min(count, call!.input.count)
        guard taken > 0 else { return 0 }
        unsafe target.copyMemory(from: call!.memory.start + call!.input.lowerBound, byteCount: taken)
        call!.input = call!.input.dropFirst(taken)
        return taken
    }

    /// Whether ``read(into:_:)`` may have bytes later.
    var mayReadLater: Bool { !isSocketAtEnd && receiveError == nil }

    /// Receives bytes from the socket.
    private func fill(asked count: Int) {
        guard !call!.isDrained, !isSocketAtEnd, receiveError == nil else { return }
        let size = call!.receiveSize ?? min(count, ThreadMemory.inputSize)
        var memory = unsafe UnsafeMutableRawBufferPointer(start: call!.memory.start, count: size).mutableBytes
        do throws(Errno) {
            let count = try call!.wire.receive(into: &memory)
            isSocketAtEnd = count == 0
            call!.input = 0..<(count ?? 0)
            // With less than asked for the socket is empty; the kernel reports what comes later.
            call!.isDrained = count ?? 0 < size
        } catch {
            receiveError = error
        }
    }

    /// OpenSSL has written bytes for the socket: up to four records at once, which the memory has room for.
    func write(_ source: UnsafeRawPointer, _ count: Int) {
        precondition(count <= ThreadMemory.outputSize, "OpenSSL has written \(count) bytes at once")
        if call!.outputCount + count > ThreadMemory.outputSize { flush() }
        let target = unsafe call!.memory.start + ThreadMemory.inputSize
        unsafe (target + call!.outputCount).copyMemory(from: source, byteCount: count)
        call!.outputCount += count
    }

    private func flush() {
        guard call!.outputCount > 0 else { return }
        defer { call!.outputCount = 0 }
        if sendError != nil { return }
        let start = unsafe call!.memory.start + ThreadMemory.inputSize
        let bytes = unsafe UnsafeRawBufferPointer(start: start, count: call!.outputCount)
        do throws(Errno) { unsafe try call!.wire.send(bytes.bytes) } catch { sendError = error }
    }

    /// Records why OpenSSL has failed, and empties its queue of errors, which it would take for another
    /// connection's.
    private func recordFailure() {
        if failure == nil { failure = reason(for: ERR_get_error()) }
        ERR_clear_error()
    }

    private func reason(for queued: UInt) -> any Error {
        if let receiveError { return receiveError }
        if isSocketAtEnd { return TLSError(isEstablished ? .truncated : .closedInHandshake, peer: peer) }
        if reactor_ssl_library(queued) != 0, reactor_error_reason(queued) == SSL_R_CERTIFICATE_VERIFY_FAILED {
            let code = unsafe CInt(SSL_get_verify_result(ssl))
            return TLSError(.init(verification: code, name: peerName ?? ""), peer: peer)
        }
        return TLSError(.init(queuedError: queued, isHandshake: !isEstablished), peer: peer)
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> (any Sendable)? {
        switch key {
        case .tlsSession, .sslPeerTrustKey: unsafe TLSSession(of: ssl)
        case .sslPeerCertificatesKey: unsafe TLSSession(of: ssl).peerCertificates
        default: nil
        }
    }
}
