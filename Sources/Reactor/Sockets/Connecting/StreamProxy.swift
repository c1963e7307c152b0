import SystemPackage

/// A server that connects to hosts on behalf of a client.
///
/// ```swift
/// let (input, output) = Stream.connection(toHost: "example.org", port: 80)
/// input.proxy = StreamProxy(.socks5, host: "localhost", port: 1080)
/// ```
///
/// The proxy's name is resolved, and its addresses are tried; the name of the host goes to the proxy as it
/// is, so that no resolver of this machine sees it. The ``Stream/connectTimeout`` covers all of it.
public struct StreamProxy: Hashable, Sendable {
    /// The protocol that the proxy speaks.
    @nonexhaustive public enum Kind: Hashable, Sendable {
        /// SOCKS 5 (RFC 1928), with user name and password if there are any (RFC 1929).
        case socks5
        /// SOCKS 4 for addresses, and 4a for names. No IPv6, and no password.
        case socks4
        /// The CONNECT method of HTTP (RFC 9110, section 9.3.6), with basic authentication if there is a
        /// user name.
        case http
    }

    /// The protocol that the proxy speaks.
    public var kind: Kind
    /// The proxy's host.
    public var host: String
    /// The proxy's port.
    public var port: UInt16
    /// The user name; nil for none.
    public var user: String?
    /// The password; nil for none.
    public var password: String?

    /// Describes a proxy.
    public init(_ kind: Kind, host: String, port: UInt16, user: String? = nil, password: String? = nil) {
        (self.kind, self.host, self.port) = (kind, host, port)
        (self.user, self.password) = (user, password)
    }

    /// The host and the port, as errors name them.
    var name: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    /// The error of a connection that has failed before the proxy has connected: names the proxy.
    func failure(_ error: any Error) -> any Error {
        (error as? Errno).map { IOError(.connect, "the proxy \(name)", $0) } ?? error
    }
}

extension StreamProxy: CustomStringConvertible, CustomReflectable {
    /// The protocol, the user, the host and the port, such as `socks5://user@localhost:1080`. The password is not shown.
    public var description: String { "\(kind)://\(user.map { "\($0)@" } ?? "")\(name)" }

    /// The properties, without the password.
    public var customMirror: Mirror {
        let password = password.map { _ in "(not shown)" }
        return Mirror(
            self,
            children: [
                "kind": kind, "host": host, "port": port, "user": user as Any, "password": password as Any,
            ], displayStyle: .struct)
    }
}

/// Why a proxy has not connected to a host: the proxy, the host and the reason.
///
/// ```swift
/// print(stream.streamError!)  // connect to example.org:80 through localhost:1080: connection refused
/// ```
public struct StreamProxyError: Error, Hashable, Sendable {
    /// Why it has failed.
    @nonexhaustive public enum Reason: Hashable, Sendable {
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

    /// The proxy's host and port.
    public let proxy: String
    /// The host and the port to connect to.
    public let target: String
    /// Why it has failed.
    public let reason: Reason
}

extension StreamProxyError: CustomStringConvertible {
    /// The host, the proxy and the reason.
    public var description: String { "connect to \(target) through \(proxy): \(reason)" }
}

extension StreamProxyError.Reason: CustomStringConvertible {
    /// The reason.
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
}

// MARK: - Streams

extension Stream {
    /// The proxy to connect through; nil to connect directly, which is the default. Both halves of a pair
    /// share it.
    ///
    /// Opening fails with a ``StreamProxyError`` if the proxy does not connect, and with an ``IOError`` or a
    /// ``ResolverError`` that names the proxy if it cannot be reached itself. ``Stream/peerAddress`` is
    /// the proxy's.
    /// - Precondition: Set before the pair is opened, on a stream that connects to a host or to an IP
    ///   address; or, without effect, on one of a bound pair.
    public var proxy: StreamProxy? {
        get { property(forKey: .streamProxy) as? StreamProxy }
        set {
            require(
                setProperty(newValue, forKey: .streamProxy) || isBound,
                "A proxy can be set only before a stream that connects to a host or to an IP address is opened."
            )
        }
    }
}

extension Stream.PropertyKey {
    static let streamProxy = Self("ReactorStreamProxy")
}

extension StreamProxy {
    /// The proxy that Cocoa's dictionary describes; nil if a key or a value is missing, unknown or
    /// unsuitable.
    init?(cocoa dictionary: [AnyHashable: Any]) {
        self.init(.socks5, host: "", port: 0)
        for (key, value) in dictionary {
            guard let name = propertyName(key.base), set(value, forKey: name) else { return nil }
        }
        if host.isEmpty || port == 0 { return nil }
    }

    private mutating func set(_ value: Any, forKey key: String) -> Bool {
        switch key {
        case "SOCKSProxy": host = value as? String ?? ""
        case "SOCKSPort":
            port =
                (value as? Int).flatMap { UInt16(exactly: $0) } ?? (value as? String).flatMap { UInt16($0) }
                ?? 0
        case "kCFStreamPropertySOCKSUser": user = value as? String
        case "kCFStreamPropertySOCKSPassword": password = value as? String
        case "kCFStreamPropertySOCKSVersion":
            switch propertyName(value) {
            case "kCFStreamSocketSOCKSVersion4": kind = .socks4
            case "kCFStreamSocketSOCKSVersion5": kind = .socks5
            default: return false
            }
            return true
        default: return false
        }
        return value is String || key == "SOCKSPort"
    }

    /// Cocoa's dictionary; nil for a proxy that it cannot describe.
    var cocoaDictionary: [String: Any]? {
        guard kind != .http else { return nil }
        var dictionary: [String: Any] = ["SOCKSProxy": host, "SOCKSPort": Int(port)]
        dictionary["kCFStreamPropertySOCKSVersion"] = "kCFStreamSocketSOCKSVersion\(kind == .socks4 ? 4 : 5)"
        dictionary["kCFStreamPropertySOCKSUser"] = user
        dictionary["kCFStreamPropertySOCKSPassword"] = password
        return dictionary
    }
}
