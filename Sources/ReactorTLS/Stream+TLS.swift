import CReactorOpenSSL
public import Reactor
import SystemPackage

extension Stream {
    /// Protects the stream's connection with TLS.
    ///
    /// Before the stream is opened, the handshake is part of opening: the streams of the pair are open when
    /// the peer has proved who it is. On an open stream it begins after the bytes that were written before
    /// (STARTTLS), and later bytes are protected; bytes of a server that were not read before are an error,
    /// because they come from anyone. Either way it is made on the library's thread within the
    /// ``Stream/connectTimeout``, and its failure fails both streams with a ``TLSError``, or with an
    /// `IOError` for one of the socket.
    ///
    /// Events are delivered for clear bytes only. Ending the output sends close_notify. If the peer ends
    /// the connection without it, the input fails with ``TLSError/Reason/truncated`` after the last byte.
    ///
    /// - Throws: ``TLSError`` if the settings cannot be used, or the stream has no socket, is closed, or
    ///   has TLS.
    public func startTLS(_ settings: TLSSettings = .client()) throws(TLSError) {
        let security = try TLSSecurity(settings)
        guard protect(by: security) else {
            throw TLSError(
                .invalidSettings("a stream needs a connection that is not closed and has no TLS yet"))
        }
    }

    /// What the handshake has agreed on; nil before that, and without TLS.
    public var tlsSession: TLSSession? { property(forKey: .tlsSession) as? TLSSession }
}

extension Stream.PropertyKey {
    static let tlsSession = Self("ReactorTLSSession")
}

/// Makes transports for settings.
struct TLSSecurity: SocketSecurity {
    let context: TLSContext
    let decision: TLSDecision?

    /// Throws if the settings cannot be used.
    init(_ settings: TLSSettings) throws(TLSError) {
        (context, decision) = (try TLSContext.context(for: settings), settings.decision)
    }

    var isServer: Bool { context.settings.role == .server }

    func makeTransport(toHost host: String?, peer: String) throws -> any SocketTransport {
        let name = context.settings.peerName ?? host
        return try TLSTransport(
            self, name: name.map(Self.withoutDot), peer: peer, resumes: host != nil)
    }

    /// A final dot makes a name absolute; certificates have none.
    private static func withoutDot(_ name: String) -> String {
        name.hasSuffix(".") && name.utf8.count > 1 ? String(name.dropLast()) : name
    }
}

/// What a handshake has agreed on.
public struct TLSSession: Hashable, Sendable {
    /// The version, such as `TLSv1.3`.
    public let version: String
    /// The cipher suite, in OpenSSL's spelling.
    public let cipher: String
    /// The application protocol; nil if none was agreed on.
    public let applicationProtocol: String?
    /// The name that a client has asked for, or that this client has; nil for an address.
    public let serverName: String?
    /// The certificates that the peer has sent, its own first (DER). Empty if it has sent none.
    public let peerCertificates: [[UInt8]]
    /// Whether an earlier session was resumed.
    public let isResumed: Bool

    init(of ssl: OpaquePointer) {
        version = unsafe String(cString: SSL_get_version(ssl))
        let cipher = unsafe SSL_get_current_cipher(ssl)
        self.cipher = unsafe cipher.map { unsafe String(cString: SSL_CIPHER_get_name($0)) } ?? ""
        var (name, count): (UnsafePointer<UInt8>?, CUnsignedInt) = (nil, 0)
        unsafe SSL_get0_alpn_selected(ssl, &name, &count)
        let bytes = unsafe UnsafeBufferPointer(start: name, count: Int(count))
        applicationProtocol = unsafe bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
        serverName = unsafe SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name).map {
            unsafe String(cString: $0)
        }
        // A server's chain lacks the client's own certificate.
        let own = unsafe SSL_get0_peer_certificate(ssl).map { unsafe [certificate($0)] } ?? []
        let chain = unsafe certificates(of: SSL_get_peer_cert_chain(ssl))
        peerCertificates = chain.first == own.first ? chain : own + chain
        isResumed = unsafe SSL_session_reused(ssl) == 1
    }
}

// MARK: - Listeners

extension Listener {
    /// Listens at `address` for connections that TLS protects.
    ///
    /// The streams that the handler gets are not opened yet; opening them makes the handshake.
    ///
    /// - Parameters:
    ///   - address: As in `init(_:options:handler:faults:)`.
    ///   - options: Options to set before listening.
    ///   - settings: The server's settings, read for each connection: to replace a certificate while the
    ///     listener runs, let them come from a variable.
    ///   - handler: Called for each connection.
    ///   - faults: Called with the reason when the listener backs off. A connection whose settings cannot
    ///     be used is closed.
    /// - Throws: ``TLSError`` if the settings cannot be used now; `IOError` as that initializer does.
    public convenience init(
        _ address: SocketAddress, options: Options = Options(),
        tls settings: @escaping @autoclosure () -> TLSSettings, handler: @escaping Handler,
        faults: @escaping FaultHandler
    ) throws {
        _ = try TLSSecurity(settings())
        try self.init(
            address, options: options,
            handler: { listener, connection in
                guard (try? connection.input.startTLS(settings())) != nil else { return }
                handler(listener, connection)
            }, faults: faults)
    }
}
