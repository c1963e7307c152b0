import Glibc
public import SystemPackage

extension IOError {
    /// Why an operation has failed.
    @nonexhaustive public enum Reason: Hashable, Sendable {
        /// A system call has failed, or a limit that the connection has was exceeded (`Errno.timedOut`).
        case system(Errno)
        /// The `timeout:` of the call has passed. What the call waited for has not happened, and may happen to a later call.
        case waitTimedOut
        /// The stream ended after so many bytes, and more were asked for: so many, or, with nil, up to a delimiter.
        ///
        /// `bytesReceived` is 0 if the stream ended between two messages.
        case ended(bytesReceived: Int, bytesRequested: Int?)
        /// A name could not be resolved (getaddrinfo(3)).
        case resolver(ResolverCode)
        /// The proxy has not connected to the host.
        case proxy(ProxyFailure)
        /// A security level that is not available was set: SSL 2 or 3, or any in a program without ReactorTLS. The stream sends
        /// no plain bytes in its place. The value is Cocoa's name of the level.
        case securityUnavailable(level: String)
        /// A setting of the security is unknown, or has a value that it cannot have. The value is Cocoa's name of the setting.
        case securitySettingUnavailable(String)
        /// A proxy was set that cannot be used: Cocoa's dictionary of a SOCKS proxy has an unknown key or value or no host or
        /// port, or the stream connects to a Unix-domain address. The stream does not connect without the proxy.
        case proxyUnavailable
    }

    /// A result code of getaddrinfo(3).
    public struct ResolverCode: RawRepresentable, Sendable, Hashable {
        /// The value, such as `EAI_NONAME`.
        public let rawValue: CInt

        /// The code of that value.
        public init(rawValue: CInt) { self.rawValue = rawValue }

        /// The name is unknown, or has no address of the requested family.
        public static let unknownName = Self(rawValue: EAI_NONAME)
        /// The service has no port for the transport.
        public static let unknownService = Self(rawValue: EAI_SERVICE)
        /// No server has answered; a later lookup may succeed.
        public static let temporaryFailure = Self(rawValue: EAI_AGAIN)
        /// A server has refused to answer.
        public static let permanentFailure = Self(rawValue: EAI_FAIL)
        /// The name is known but has no address.
        public static let noAddress = Self(rawValue: -5)  // EAI_NODATA, which Swift's Glibc module lacks
        /// The name has addresses, but none of the requested family.
        public static let noAddressInFamily = Self(rawValue: -9)  // EAI_ADDRFAMILY, which it lacks too
    }

    /// Why a proxy has not connected to a host.
    @nonexhaustive public enum ProxyFailure: Hashable, Sendable {
        /// A failure of the proxy itself.
        case generalFailure
        /// The proxy's rules forbid the connection.
        case notAllowed
        /// The host's network cannot be reached.
        case networkUnreachable
        /// The host cannot be reached, or its name cannot be resolved.
        case hostUnreachable
        /// The host refuses the connection.
        case connectionRefused
        /// The packets' time to live has expired.
        case timeToLiveExpired
        /// The proxy does not connect to hosts.
        case commandNotSupported
        /// The proxy, or the protocol, does not have this kind of address.
        case addressNotSupported
        /// The request was rejected or has failed: SOCKS 4 tells no more.
        case rejected
        /// The proxy cannot ask the client's machine for the user (SOCKS 4).
        case userUnknown
        /// The proxy requires an authentication that the client does not have.
        case authenticationRequired
        /// The proxy accepts none of the offered ways of authentication (SOCKS 5).
        case noAcceptableMethod
        /// The user name or the password is wrong.
        case authenticationFailed
        /// A reply of this code, which the protocol does not define.
        case code(UInt8)
        /// HTTP's status, and the beginning of its phrase in printable ASCII.
        case status(Int, String)
        /// The reply is not of the protocol.
        case notAProxy
        /// The proxy has closed the connection before its reply.
        case closed
        /// A name, a user or a password is too long for the protocol, or has characters that it cannot have.
        case cannotBeEncoded
    }
}

/// What a stream is required to do and this program does not support. The stream's error is an ``IOError`` with the reason.
package struct UnmetRequirement: Error, Hashable {
    package let reason: IOError.Reason

    package init(_ reason: IOError.Reason) { self.reason = reason }
}

// MARK: - In words

extension IOError.Reason: CustomStringConvertible {
    /// The reason.
    public var description: String {
        switch self {
        case .system(let errno): "\(errno)"
        case .waitTimedOut: "timed out"
        case .ended(let received, let requested):
            "ended after \(received)\(requested.map { " of \($0)" } ?? "") bytes"
        case .resolver(let code): "\(code)"
        case .proxy(let failure): "\(failure)"
        case .securityUnavailable(let level):
            "the security level \(level) is not available: ReactorTLS has TLS 1.2 and newer"
        case .securitySettingUnavailable(let setting):
            "the stream cannot have the security setting \(setting)"
        case .proxyUnavailable: "the stream cannot connect through the proxy that was set"
        }
    }
}

extension IOError.ResolverCode: CustomStringConvertible {
    /// The text of gai_strerror(3).
    public var description: String { unsafe String(cString: gai_strerror(rawValue)) }
}

extension IOError.ProxyFailure: CustomStringConvertible {
    /// The failure.
    public var description: String {
        switch self {
        case .generalFailure: "general failure of the proxy"
        case .notAllowed: "not allowed by the proxy's rules"
        case .networkUnreachable: "network unreachable"
        case .hostUnreachable: "host unreachable"
        case .connectionRefused: "connection refused"
        case .timeToLiveExpired: "time to live expired"
        case .commandNotSupported: "the proxy does not connect to hosts"
        case .addressNotSupported: "the proxy does not support this kind of address"
        case .rejected: "rejected or failed"
        case .userUnknown: "the proxy cannot identify the user"
        case .authenticationRequired: "the proxy requires authentication"
        case .noAcceptableMethod: "the proxy accepts none of the offered authentication methods"
        case .authenticationFailed: "the proxy rejects the user name or the password"
        case .code(let code): "unknown reply code \(code)"
        case .status(let status, let phrase):
            phrase.isEmpty ? "HTTP status \(status)" : "HTTP status \(status) \(phrase)"
        case .notAProxy: "the reply is not a proxy's"
        case .closed: "the proxy has closed the connection"
        case .cannotBeEncoded: "a name, a user or a password cannot be sent to the proxy"
        }
    }

    /// Cocoa's code of SOCKS errors: bad credentials, no acceptable method, a failed request or identification; else an unknown
    /// status.
    var cocoaCode: Int {
        switch self {
        case .authenticationFailed: 120
        case .authenticationRequired, .noAcceptableMethod: 122
        case .rejected: 110
        case .userUnknown: 111
        default: 113
        }
    }
}

extension IOError.Reason {
    /// Why a wait of a task has ended: `Errno.timedOut` is its own timeout.
    static func endOfWait(_ errno: Errno) -> Self { errno == .timedOut ? .waitTimedOut : .system(errno) }
}
