public import Reactor

extension HTTPSession {
    /// The settings of a session.
    public struct Configuration: Sendable {
        /// The most connections at the same time, at least 1; nil for no limit. Further transfers wait.
        public var maxConnections: Int?
        /// The most connections to one host and port, at least 1; nil for no limit.
        public var maxConnectionsPerHost: Int? = 6

        /// How long resolving the name, connecting and the TLS handshake may take; nil for no limit.
        ///
        /// A call of getaddrinfo(3) that has begun continues in the background when its transfer ends. Before libcurl 7.87 the
        /// loop waits for it.
        ///
        /// Timeouts count only while the loop runs in the session's modes: a loop that tracks lets no transfer time out. A
        /// callback or an observer that keeps the loop busy counts for a tenth of a second at most.
        public var connectTimeout: Duration? = .seconds(60)
        /// How long a transfer may neither send nor receive a byte once it is connected; nil for no limit. Bytes count as
        /// sent when the kernel has taken them. A transfer that is suspended, or waits for a slow consumer, does not time
        /// out.
        public var idleTimeout: Duration? = .seconds(60)
        /// How long a transfer may take, from its start and with its retries; nil for no limit.
        public var totalTimeout: Duration?

        /// The most times that the session sends a failed request again, at least 0.
        ///
        /// It does so only if the method is idempotent (RFC 9110) and the body can be sent again, if the error may be
        /// transient, such as a lost connection, and if no part of the response has reached a closure, a delegate, a task, a
        /// stream, a FIFO or a device. A download to a file continues where it ended, and is retried, as no other transfer is,
        /// if the server is busy: with the status 408, 429, 500, 502, 503 or 504.
        public var retries = 0
        /// The time before the first retry. Each further retry waits twice as long as the one before, up to an hour.
        public var retryDelay: Duration = .milliseconds(500)

        /// The most redirects that are followed, at least 0; with 0, a redirect is a response like any other.
        ///
        /// 301, 302, 303, 307 and 308 are followed. After 303, and for POST after 301 and 302, the method is GET, or stays
        /// HEAD. Other hosts, ports and schemes receive no `Authorization` and no `Cookie`. Only proxies receive
        /// `Proxy-Authorization`, whether a request is redirected or not.
        public var maxRedirects = 20
        /// Whether a redirect from `https` to `http` is followed; otherwise it is an error.
        public var followsInsecureRedirects = false
        /// The versions of HTTP to offer.
        public var versions = Versions.automatic
        /// A file of certificates, in PEM, that replaces the system's trust roots; nil for those.
        public var trustRoots: FilePath?
        /// How servers are authenticated.
        public var serverVerification = ServerVerification.full
        /// The `User-Agent` field; nil for none.
        public var userAgent: String? = "swift-reactor"
        /// Whether to accept compressed bodies, which are then decoded. Files are always downloaded as they are, so that
        /// their lengths are known and they can be resumed. A compressed body that its sender has cut, with the right
        /// `Content-Length`, is not an error.
        public var acceptsCompressedBodies = true
        /// How many bytes of a body may wait for their consumer before the transfer pauses; at least 1. The memory that
        /// the bytes take is counted, however they arrive. Up to 1 MiB more is kept for further bytes.
        ///
        /// libcurl decodes what it has read as a whole, so a compressed body may exceed this by two reads: by 122 MiB at most
        /// with gzip. If a read decodes to more than 64 MiB, as with other encodings it may, the transfer fails with
        /// ``HTTPError/Kind/bodyTooLarge(limit:)``.
        public var bytesInFlight = 1 << 20

        /// The default settings.
        public init() {}

        /// The times before the retries of a transfer; nil for none.
        var retryDelays: Backoff? {
            retryDelay > .zero ? Backoff(first: retryDelay, limit: max(retryDelay, .seconds(3600))) : nil
        }

        var hasTimeouts: Bool { connectTimeout != nil || idleTimeout != nil || totalTimeout != nil }

        func requireValid() {
            func require(_ name: String, _ value: Int?, isAtLeast least: Int) {
                guard let value, value < least else { return }
                fatalError("HTTPSession.Configuration.\(name) must be at least \(least) (it is \(value)).")
            }
            require("maxConnections", maxConnections, isAtLeast: 1)
            require("maxConnectionsPerHost", maxConnectionsPerHost, isAtLeast: 1)
            require("retries", retries, isAtLeast: 0)
            require("maxRedirects", maxRedirects, isAtLeast: 0)
            require("bytesInFlight", bytesInFlight, isAtLeast: 1)
        }
    }

    /// Versions of HTTP to offer.
    @nonexhaustive public enum Versions: Sendable {
        /// HTTP/2 if the server offers it in the TLS handshake, otherwise HTTP/1.1.
        case automatic
        /// HTTP/1.1 only.
        case http1
    }

    /// How servers are authenticated.
    @nonexhaustive public enum ServerVerification: Sendable {
        /// The certificate must be valid, trusted, and the host's.
        case full
        /// Any certificate of any host is accepted: anyone on the network can read and change what is sent and received.
        case insecureNone
    }
}
