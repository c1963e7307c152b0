public import Reactor

// Cocoa's types of socket properties. The library knows their values by name.

extension Reactor.Stream.PropertyKey {
    /// A ``StreamSocketSecurityLevel``, or its name; reading it returns the name. Shared by both streams of a
    /// connection.
    ///
    /// A level other than ``StreamSocketSecurityLevel/none``, the default, needs ReactorTLS: without it,
    /// streams do not open, and open ones end, with `IOError.Reason.unsupported`. With it,
    /// the handshake is a part of opening, and on open streams it begins at once. The peer's certificate is
    /// checked, and must be for the host. A stream whose settings ReactorTLS's `beginTLS(_:)` has set keeps
    /// them: no level and no dictionary changes them, or removes the protection.
    public static let socketSecurityLevelKey = Self("kCFStreamPropertySocketSecurityLevel")

    /// A dictionary with keys of ``StreamSOCKSProxyConfiguration``; nil for no proxy. Set before opening.
    ///
    /// A stream with a dictionary that is no usable proxy fails with `IOError.Reason.unsupported`
    /// instead of connecting directly.
    public static let socksProxyConfigurationKey = Self("kCFStreamPropertySOCKSProxy")

    /// A ``StreamNetworkServiceTypeValue``, or its name; reading it returns the name. Nil by default.
    public static let networkServiceType = Self("kCFStreamNetworkServiceType")
}

/// The protection of a socket stream's bytes: the values of `Stream.PropertyKey.socketSecurityLevelKey`.
///
/// A stream with a level other than ``none`` never sends or reads plain bytes.
public struct StreamSocketSecurityLevel: RawRepresentable, Hashable, Sendable {
    /// Cocoa's name of the level.
    public let rawValue: String

    /// The level called `rawValue`.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Plain bytes.
    public static let none = Self(rawValue: "kCFStreamSocketSecurityLevelNone")
    /// SSL 2, which is not available.
    public static let ssLv2 = Self(rawValue: "kCFStreamSocketSecurityLevelSSLv2")
    /// SSL 3, which is not available.
    public static let ssLv3 = Self(rawValue: "kCFStreamSocketSecurityLevelSSLv3")
    /// TLS 1.2 or newer: older versions are not available.
    public static let tlSv1 = Self(rawValue: "kCFStreamSocketSecurityLevelTLSv1")
    /// The highest version that both peers support, TLS 1.2 or newer.
    public static let negotiatedSSL = Self(rawValue: "kCFStreamSocketSecurityLevelNegotiatedSSL")
}

/// The keys of a SOCKS proxy's configuration: `Stream.PropertyKey.socksProxyConfigurationKey`.
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
    /// The user name.
    public static let userKey = Self(rawValue: "kCFStreamPropertySOCKSUser")
    /// The password.
    public static let passwordKey = Self(rawValue: "kCFStreamPropertySOCKSPassword")
}

/// A version of the SOCKS protocol.
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

/// The kind of traffic of a socket stream: the values of `Stream.PropertyKey.networkServiceType`.
///
/// The socket's packets are marked with a differentiated services code point according to RFC 4594 (ip(7),
/// `IP_TOS`; ipv6(7), `IPV6_TCLASS`), which routers and the kernel's queues may honour. No effect on
/// Unix-domain sockets.
public struct StreamNetworkServiceTypeValue: RawRepresentable, Hashable, Sendable {
    /// Cocoa's name of the value.
    public let rawValue: String

    /// The value called `rawValue`.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Call signalling (DSCP CS5). It does not wake a suspended program, as it does on iOS.
    public static let voIP = Self(rawValue: "kCFStreamNetworkServiceTypeVoIP")
    /// Video (DSCP AF41).
    public static let video = Self(rawValue: "kCFStreamNetworkServiceTypeVideo")
    /// Background traffic (DSCP CS1).
    public static let background = Self(rawValue: "kCFStreamNetworkServiceTypeBackground")
    /// Voice (DSCP EF).
    public static let voice = Self(rawValue: "kCFStreamNetworkServiceTypeVoice")
    /// Call signalling (DSCP CS5).
    public static let callSignaling = Self(rawValue: "kCFStreamNetworkServiceTypeCallSignaling")
}
