import SystemPackage

/// A server that connects to hosts on behalf of a client.
///
/// ```swift
/// let proxy = StreamProxy(.socks5, host: "localhost", port: 1080)
/// let connection = Connection(toHost: "example.org", port: 80, options: .init(proxy: proxy))
/// ```
///
/// The proxy's name is resolved, and its addresses are tried; the name of the host goes to the proxy as it
/// is, so that no resolver of this machine sees it. The ``ConnectionOptions/connectTimeout`` covers all of it.
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
    var name: String { endpointName(host, port) }

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

// MARK: - Cocoa's dictionary

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
