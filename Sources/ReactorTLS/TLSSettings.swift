public import SystemPackage

/// The requirements of TLS on a connection, and its offers to the peer.
///
/// The defaults are safe: TLS 1.2 and newer, the peer's chain of certificates and its name are checked, and
/// the system's certificates are trusted. Whatever turns a check off says so where it is set.
///
/// ```swift
/// try stream.beginTLS()                                               // a client
/// let identity = try TLSIdentity(certificateFile: "server.pem", keyFile: "server.key")
/// try stream.beginTLS(.server(identity))
/// ```
///
/// Connections whose settings are equal but for ``peerName`` share one OpenSSL context and the sessions that can be resumed.
/// The library keeps the contexts of the 128 settings that were used last, those with ``identities`` or a ``peerVerifier``
/// until one of these objects is released. It retains none of them.
public struct TLSSettings: Hashable, Sendable {
    /// Which side of the handshake this is.
    public enum Role: Hashable, Sendable {
        /// Begins the handshake.
        case client
        /// Answers, with a certificate.
        case server
    }

    /// The checks of the peer's certificates.
    @nonexhaustive public enum Verification: Hashable, Sendable {
        /// The chain; and on a client, that one of the certificate's alternative names is
        /// ``TLSSettings/peerName``.
        case full
        /// The chain, and not whom it is for: any holder of any trusted certificate is accepted.
        case chainWithoutName
        /// Nothing, on a client: anyone on the network's path can read and change everything. A
        /// ``TLSSettings/peerVerifier`` is still called. On a server, ``TLSSettings/clientCertificates`` alone
        /// decides what is checked.
        case disabled
    }

    /// Whether a server asks its clients for certificates.
    @nonexhaustive public enum ClientCertificates: Hashable, Sendable {
        /// It does not.
        case ignored
        /// It does, and checks them, but accepts clients without.
        case requested
        /// It does, and rejects clients without.
        case required
    }

    /// A version of TLS. The raw value is the protocol's number.
    @nonexhaustive public enum Version: Int, Hashable, Comparable, Sendable {
        /// TLS 1.2 (RFC 5246).
        case tls12 = 0x0303
        /// TLS 1.3 (RFC 8446).
        case tls13 = 0x0304

        /// Whether `left` is older.
        public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
    }

    /// Which side of the handshake this is.
    public var role: Role
    /// The issuers to trust.
    public var trust = TLSTrust.system
    /// The checks of the peer's certificates.
    public var verification = Verification.full
    /// The name that a server's certificate must be for, and that a client sends it (SNI): a host's name or
    /// a numeric address. Nil for the host or the address that the stream connects to.
    public var peerName: String?
    /// This side's certificates. A server presents the first one that is for the name that a client asks
    /// for, or else the first one.
    public var identities: [TLSIdentity] = []
    /// The application protocols (ALPN, RFC 7301), such as `h2`, in the order of preference. Empty for none.
    public var applicationProtocols: [String] = []
    /// The oldest version to accept.
    public var minimumVersion = Version.tls12
    /// The newest version to offer; nil for the newest that OpenSSL has.
    public var maximumVersion: Version?
    /// Whether a server asks its clients for certificates.
    public var clientCertificates = ClientCertificates.ignored
    /// Whether sessions are resumed, which spares later handshakes most of their cost.
    ///
    /// A resumed session is not verified again, but a ``peerVerifier`` is called again. A client keeps a session for
    /// each of 256 hosts, and resumes none of which the verification is more than a day old.
    public var resumesSessions = true
    /// Accepts or rejects the peer's chain in the place of the verification, whose result it gets; nil to
    /// follow that.
    public var peerVerifier: TLSPeerVerifier?

    /// The settings of a client.
    ///
    /// - Parameter identity: Its certificate, if it has one.
    public static func client(_ identity: TLSIdentity? = nil) -> TLSSettings {
        TLSSettings(role: .client, identities: identity.map { [$0] } ?? [])
    }

    /// The settings of a server.
    ///
    /// - Parameter identities: Its certificates.
    public static func server(_ identities: TLSIdentity...) -> TLSSettings {
        TLSSettings(role: .server, identities: identities)
    }
}

/// The issuers of certificates to trust.
@nonexhaustive public enum TLSTrust: Hashable, Sendable {
    /// The system's: OpenSSL's directory, or `SSL_CERT_DIR` and `SSL_CERT_FILE`.
    case system
    /// The certificates in this file (PEM).
    ///
    /// The file is read when settings with this path are first used, and not again: to replace it while the
    /// program runs, read the file and pass ``certificates(_:)``. If it contains a revocation list, the issuer
    /// of every peer's own certificate must have a current one in it.
    case file(FilePath)
    /// The certificates in this directory, named as by openssl-rehash(1). Revocation lists in it are not used.
    case directory(FilePath)
    /// These certificates (PEM). If they contain a revocation list, the issuer of every peer's own certificate
    /// must have a current one among them.
    case certificates([UInt8])
    /// The certificates of all of these: `.anyOf([.system, .file("authority.pem")])` trusts an authority of
    /// one's own besides the system's. A revocation list in one of them counts for all.
    case anyOf([TLSTrust])
}

/// A program's closure that accepts or rejects the peer's chain of certificates.
///
/// It is called in each handshake in which the peer has presented certificates, whatever
/// ``TLSSettings/verification`` says. When a session is resumed it is called with what the first handshake has
/// found; a server then knows only the client's own certificate. Make one object for all connections that
/// decide in the same way: they share what OpenSSL makes of their settings.
public final class TLSPeerVerifier: Hashable, Sendable {
    /// The peer's certificates, and what the verification has found.
    public struct Evidence: Sendable {
        /// The certificates that the peer has sent, its own first (DER).
        public let chain: [[UInt8]]
        /// The name that a client expects.
        public let name: String?
        /// The first check that failed; nil if all succeeded. Later ones were not made: a self-signed
        /// certificate, for example, is reported before its dates and its name are looked at, so accepting
        /// ``TLSError/Reason/selfSigned`` accepts any name. The name is checked only with
        /// ``TLSSettings/Verification/full``.
        public let failure: TLSError.Reason?

        /// - Parameter code: OpenSSL's result of the verification.
        init(_ chain: [[UInt8]], name: String?, verification code: CInt) {
            (self.chain, self.name) = (chain, name)
            failure = code == 0 ? nil : TLSError.Reason(verification: code, name: name ?? "")
        }
    }

    let accepts: @Sendable (Evidence) -> Bool

    /// - Parameter accepts: Whether to accept the peer. Called during the handshake, on the one thread of the library that
    ///   makes all handshakes of the process: what takes long here delays them all.
    public init(_ accepts: @escaping @Sendable (Evidence) -> Bool) { self.accepts = accepts }

    /// Whether both are the same object.
    public static func == (left: TLSPeerVerifier, right: TLSPeerVerifier) -> Bool { left === right }

    deinit { TLSContext.removeAll(of: self) }

    /// Adds the object's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
