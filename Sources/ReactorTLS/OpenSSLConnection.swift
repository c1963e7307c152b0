import CReactorOpenSSL
import Reactor

/// A connection of OpenSSL's (SSL): a handle that owns it.
///
/// `@safe` is right: the pointer is valid as long as this. OpenSSL itself refuses calls that its state does not allow.
@safe
struct OpenSSLConnection: ~Copyable {
    @safe private let pointer: OpaquePointer

    init(_ context: OpenSSLObject) throws(TLSError) {
        guard let pointer = unsafe reactor_tls_make(context.pointer, TransportBIO.method) else {
            throw .settings("OpenSSL has no memory")
        }
        unsafe self.pointer = pointer
    }

    /// Makes it read and write by `transport`, which keeps this, and so outlives it.
    func setTransport(_ transport: TLSTransport) {
        unsafe reactor_tls_set_data(pointer, CallbackContext.address(of: transport))
    }

    deinit { unsafe SSL_free(pointer) }

    /// Begins as a client or as a server.
    func begin(as role: TLSSettings.Role) {
        if role == .client {
            SSL_set_connect_state(pointer)
        } else {
            SSL_set_accept_state(pointer)
        }
    }

    /// Offers a session to the server.
    func resume(_ session: OpenSSLObject) { SSL_set_session(pointer, session.pointer) }

    // MARK: The handshake

    func shakeHands() -> CInt { SSL_do_handshake(pointer) }

    /// Whether it is making a handshake, or has received a part of a message of TLS 1.3.
    var isInHandshake: Bool { SSL_in_init(pointer) == 1 }

    var isResumed: Bool { SSL_session_reused(pointer) == 1 }

    var version: CInt { SSL_version(pointer) }

    /// The result of the peer's verification, in the handshake or in the one whose session was resumed.
    var verification: CInt { CInt(SSL_get_verify_result(pointer)) }

    // MARK: Bytes

    func read(into target: UnsafeMutableRawPointer, _ count: CInt) -> CInt {
        unsafe SSL_read(pointer, target, count)
    }

    /// Decrypts bytes, without taking them, if a record has arrived.
    func peek() -> CInt {
        var byte: UInt8 = 0
        return unsafe SSL_peek(pointer, &byte, 1)
    }

    func write(_ bytes: RawSpan) -> CInt {
        bytes.withAddress { unsafe SSL_write(pointer, $0, CInt($1)) }
    }

    /// Sends close_notify.
    func shutDown() -> CInt { SSL_shutdown(pointer) }

    /// Whether clear bytes are ready.
    var hasPending: Bool { SSL_pending(pointer) > 0 }

    /// Whether the peer has sent close_notify.
    var hasPeerEnded: Bool { SSL_get_shutdown(pointer) & SSL_RECEIVED_SHUTDOWN != 0 }

    /// Makes its session one that can be resumed: OpenSSL considers that of a connection without close_notify broken.
    func markShutDown() { SSL_set_shutdown(pointer, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN) }

    /// OpenSSL's code for a call that has returned `result`.
    func error(_ result: CInt) -> CInt { SSL_get_error(pointer, result) }

    // MARK: Names

    /// Requires a peer certificate for a host's name. A wildcard stands for a whole label, and as on a Mac, the common
    /// name counts for nothing.
    func check(_ name: String) -> Bool {
        let flags = X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS
        SSL_set_hostflags(pointer, CUnsignedInt(flags))
        return SSL_set1_host(pointer, name) == 1
    }

    /// Requires a peer certificate for an address. Certificates have no interfaces.
    func check(_ address: SocketAddress) -> Bool {
        let parameters = unsafe SSL_get0_param(pointer)
        func set(_ number: some FixedWidthInteger) -> Bool {
            unsafe withUnsafeBytes(of: number.bigEndian) { bytes in
                let start = unsafe bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
                return unsafe X509_VERIFY_PARAM_set1_ip(parameters, start, bytes.count) == 1
            }
        }
        return address.ipv4.map(set) ?? address.ipv6.map(set) ?? false
    }

    /// Sends the name of a host to the server.
    func send(name: String) -> Bool { reactor_tls_set_server_name(pointer, name) }

    /// The name that a client has asked for.
    private var serverName: String? {
        unsafe String(copying: SSL_get_servername(pointer, TLSEXT_NAMETYPE_host_name))
    }

    // MARK: What was agreed on

    private var applicationProtocol: String? {
        var (name, count): (UnsafePointer<UInt8>?, CUnsignedInt) = (nil, 0)
        unsafe SSL_get0_alpn_selected(pointer, &name, &count)
        let bytes = unsafe UnsafeBufferPointer(start: name, count: Int(count))
        return unsafe bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }

    /// The certificates that the peer has sent, its own first (DER).
    var peerCertificates: [[UInt8]] {
        // A server's chain lacks the client's own certificate.
        let own = unsafe SSL_get0_peer_certificate(pointer).map { unsafe [certificate($0)] } ?? []
        let chain = unsafe certificates(of: SSL_get_peer_cert_chain(pointer))
        return chain.first == own.first ? chain : own + chain
    }

    var session: TLSSession {
        TLSSession(
            version: unsafe String(cString: SSL_get_version(pointer)),
            cipher: unsafe SSL_get_current_cipher(pointer).map {
                unsafe String(cString: SSL_CIPHER_get_name($0))
            }
                ?? "",
            applicationProtocol: applicationProtocol, serverName: serverName,
            peerCertificates: peerCertificates, isResumed: isResumed)
    }
}
