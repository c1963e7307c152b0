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
    /// While only a part of a message of the peer has come, what is written waits for the rest of that, and a flush with it.
    /// Ending the output, or closing the stream, before it has come loses these bytes, and fails with ``TLSError``.
    ///
    /// Events are delivered for clear bytes only. Ending the output sends close_notify. If the peer ends
    /// the connection without it, the input fails with ``TLSError/Reason/truncated`` after the last byte.
    ///
    /// - Throws: ``TLSError`` with ``TLSError/Reason/invalidSettings(_:)`` if the settings cannot be used; with
    ///   ``TLSError/Reason/cannotBegin(_:)`` if the stream has no socket, is closed, has failed, or has TLS, or while a task
    ///   iterates over its lines or bytes, which reads ahead.
    public func beginTLS(_ settings: TLSSettings = .client()) throws(TLSError) {
        let security = try TLSSecurity(settings)
        guard protect(by: security) else {
            throw TLSError(.cannotBegin(obstacle))
        }
    }

    /// Why the stream cannot be protected.
    var obstacle: String {
        switch streamStatus {
        case .closed: "on a closed stream"
        case .error: "on a stream that has failed: \(streamError.map { "\($0)" } ?? "")"
        default:
            property(forKey: .shouldCloseNativeSocketKey) == nil
                ? "on a stream without a socket, which an adopted descriptor has when it is open"
                : "on a stream that has it, whose connection has ended, or while a task iterates over its lines or bytes"
        }
    }

    /// The result of the handshake; nil before that, and without TLS.
    public var tlsSession: TLSSession? { property(forKey: .sslPeerTrustKey) as? TLSSession }
}

/// Creates transports for settings.
struct TLSSecurity: SocketSecurity {
    let context: TLSContext
    let verifier: TLSPeerVerifier?
    private let peerName: String?

    /// Throws if the settings cannot be used.
    init(_ settings: TLSSettings) throws(TLSError) {
        context = try TLSContext.context(for: settings)
        (verifier, peerName) = (settings.peerVerifier, settings.peerName)
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

/// The result of a handshake.
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
