import CReactorOpenSSL
public import Reactor
import SystemPackage

extension Stream {
    /// Protects the stream's connection with TLS.
    ///
    /// Before the stream is opened, the handshake is part of opening: the streams of the pair are open when it
    /// has completed, and a client has then checked the server as the settings say. On an open stream it
    /// begins after the bytes that were written before (STARTTLS), and later bytes are protected. On a client,
    /// unread bytes from the server then fail the stream with ``TLSError/Reason/unprotectedBytes``: an
    /// attacker may have inserted them.
    ///
    /// The handshake is made on a thread of the library within the `connectTimeout`, which on an open stream
    /// is counted from this call. Its failure fails both streams with a ``TLSError``, or with an `IOError` for
    /// one of the socket.
    ///
    /// Events are delivered for clear bytes only. Ending the output sends close_notify. If the peer ends
    /// the connection without it, the input fails with ``TLSError/Reason/truncated`` after the last byte.
    ///
    /// - Throws: ``TLSError`` with ``TLSError/Reason/invalidSettings(_:)`` if the settings cannot be used, or
    ///   the stream has no socket, is closed, has failed, or has TLS, or while a task iterates over its lines or bytes, which
    ///   reads ahead.
    public func startTLS(_ settings: TLSSettings = .client()) throws(TLSError) {
        let security = try TLSSecurity(settings)
        guard protect(by: security) else {
            throw TLSError(.invalidSettings(obstacle))
        }
    }

    /// Why the stream cannot be protected.
    var obstacle: String {
        switch streamStatus {
        case .closed: "startTLS was called on a closed stream"
        case .error: "startTLS was called on a stream that has failed: \(streamError.map { "\($0)" } ?? "")"
        default:
            property(forKey: .shouldCloseNativeSocketKey) == nil
                ? "startTLS needs the stream of a socket, which an adopted descriptor has when it is open"
                : "startTLS was called on a stream that has TLS, whose connection has ended, or while a task iterates over its lines or bytes"
        }
    }

    /// What the handshake has agreed on; nil before that, and without TLS.
    public var tlsSession: TLSSession? { property(forKey: .sslPeerTrustKey) as? TLSSession }
}

/// Makes transports for settings.
struct TLSSecurity: SocketSecurity {
    let context: TLSContext
    let verifier: TLSPeerVerifier?
    private let peerName: String?

    /// Throws if the settings cannot be used.
    init(_ settings: TLSSettings) throws(TLSError) {
        context = try TLSContext.context(for: settings)
        (verifier, peerName) = (settings.peerVerifier, settings.peerName)
    }

    /// Throws if the settings are a client's, too.
    init(server settings: TLSSettings) throws(TLSError) {
        guard settings.role == .server else {
            throw TLSError(.invalidSettings("a listener needs the settings of a server"))
        }
        try self.init(settings)
    }

    var isServer: Bool { context.settings.role == .server }

    func makeSession(toHost host: String?, peer: String) throws -> any SecureSession {
        let name = peerName ?? host
        return try TLSTransport(
            self, name: name.map(Self.withoutDot), peer: peer, resumes: host != nil)
    }

    package func unprotectedBytes(from peer: String) -> any Error { TLSError(.unprotectedBytes, peer: peer) }

    /// A final dot makes a name absolute; certificates have none.
    private static func withoutDot(_ name: String) -> String {
        name.hasSuffix(".") && name.utf8.count > 1 ? String(name.dropLast()) : name
    }
}

/// What a handshake has agreed on.
public struct TLSSession: Hashable, Sendable, CustomStringConvertible {
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

    /// The version, the cipher suite and the names, without the certificates.
    public var description: String {
        let parts = [version, cipher, applicationProtocol, serverName, isResumed ? "resumed" : nil]
        return parts.compactMap { $0 }.joined(separator: ", ")
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
    ///   - settings: The server's settings, for all connections.
    ///   - handler: Called for each connection.
    ///   - faults: Called with the reason when the listener backs off.
    /// - Throws: ``TLSError`` if the settings are a client's or cannot be used; `IOError` as that initializer
    ///   does.
    public convenience init(
        _ address: SocketAddress, options: Options = Options(), tls settings: TLSSettings,
        handler: @escaping Handler, faults: FaultHandler? = nil
    ) throws {
        let security = try TLSSecurity(server: settings)
        try self.init(
            address, options: options,
            handler: { listener, connection in
                if connection.protect(by: Connection.Security(security)) { handler(listener, connection) }
            }, faults: faults)
    }

    /// Listens at `address` for connections that TLS protects, with settings that may change.
    ///
    /// - Parameters:
    ///   - address: As in `init(_:options:handler:faults:)`.
    ///   - options: Options to set before listening.
    ///   - settings: Called now and for each connection, on the loop's thread. Return settings that are stored;
    ///     load certificates elsewhere.
    ///   - handler: Called for each connection.
    ///   - faults: Called with an `IOError` when the listener backs off, and with the error of a connection
    ///     that is closed because `settings` throws or cannot be used.
    /// - Throws: What `settings` throws; ``TLSError`` if they are a client's or cannot be used now; `IOError`
    ///   as that initializer does.
    public convenience init(
        _ address: SocketAddress, options: Options = Options(),
        tls settings: @escaping () throws -> TLSSettings, handler: @escaping Handler,
        faults: @escaping (Listener, any Error) -> Void
    ) throws {
        _ = try TLSSecurity(server: settings())
        try self.init(
            address, options: options,
            handler: { listener, connection in
                do {
                    let security = try TLSSecurity(server: settings())
                    if connection.protect(by: Connection.Security(security)) { handler(listener, connection) }
                } catch {
                    faults(listener, error)
                }
            }, faults: { faults($0, $1) })
    }
}
