/// The keys of Cocoa's dictionary that describes a SOCKS proxy: ``Stream/PropertyKey/socksProxyConfigurationKey``.
public struct StreamSOCKSProxyConfiguration: RawRepresentable, Hashable, Sendable {
    /// Cocoa's name of the key.
    public let rawValue: String

    /// The key called `rawValue`.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The proxy's host.
    public static let hostKey = Self(rawValue: "SOCKSProxy")
    /// The proxy's port.
    public static let portKey = Self(rawValue: "SOCKSPort")
    /// The protocol's version, a ``StreamSOCKSProxyVersion``.
    public static let versionKey = Self(rawValue: "kCFStreamPropertySOCKSVersion")
    /// The user's name at the proxy.
    public static let userKey = Self(rawValue: "kCFStreamPropertySOCKSUser")
    /// The user's password at the proxy.
    public static let passwordKey = Self(rawValue: "kCFStreamPropertySOCKSPassword")
}

/// The versions of the SOCKS protocol, as Cocoa names them.
public struct StreamSOCKSProxyVersion: RawRepresentable, Hashable, Sendable {
    /// Cocoa's name of the version.
    public let rawValue: String

    /// The version called `rawValue`.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// SOCKS 4.
    public static let version4 = Self(rawValue: "kCFStreamSocketSOCKSVersion4")
    /// SOCKS 5.
    public static let version5 = Self(rawValue: "kCFStreamSocketSOCKSVersion5")
}
