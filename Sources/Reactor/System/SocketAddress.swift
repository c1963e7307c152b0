import Glibc

/// The address of a socket: IPv4, IPv6, Unix-domain, or of any other family that the kernel has.
///
/// IP addresses need no allocation. Two addresses are equal if all their parts are. Ports and numbers are in
/// the host's byte order.
///
/// ```swift
/// let server = SocketAddress("[::1]:8080")
/// let everywhere = SocketAddress.ipv6Any(port: 8080)
/// let local = try SocketAddress(unixPath: "/run/service.sock")
/// ```
///
/// Text must be numeric; the ``Resolver`` resolves names.
public struct SocketAddress: Sendable, Hashable {
    enum Storage: Sendable, Hashable {
        case ipv4(UInt32, port: UInt16)
        case ipv6(UInt128, port: UInt16, scope: UInt32, flow: UInt32)
        /// A path, an abstract name, which begins with a zero byte, or nothing.
        case unix([UInt8])
        /// The bytes that follow the family in a `sockaddr`.
        case other(Family, [UInt8])
    }

    let storage: Storage

    init(_ storage: Storage) { self.storage = storage }

    // MARK: Creating

    /// Creates an IPv4 address, such as 0x7f00_0001 for 127.0.0.1; ip(7).
    public static func ipv4(_ address: UInt32, port: UInt16) -> SocketAddress {
        SocketAddress(.ipv4(address, port: port))
    }

    /// Creates an IPv6 address, such as 1 for ::1; ipv6(7).
    ///
    /// - Parameters:
    ///   - address: The 128 bits of the address.
    ///   - port: The port; 0 for the kernel's choice.
    ///   - scope: The index of the interface that a link-local address belongs to; 0 for none.
    ///   - flowInformation: The traffic class and flow label (RFC 2460); 0 for most uses.
    public static func ipv6(
        _ address: UInt128, port: UInt16, scope: UInt32 = 0, flowInformation: UInt32 = 0
    ) -> SocketAddress {
        SocketAddress(.ipv6(address, port: port, scope: scope, flow: flowInformation))
    }

    /// 127.0.0.1, this machine.
    public static func ipv4Loopback(port: UInt16) -> SocketAddress { ipv4(0x7f00_0001, port: port) }

    /// ::1, this machine.
    public static func ipv6Loopback(port: UInt16) -> SocketAddress { ipv6(1, port: port) }

    /// 0.0.0.0, for binding to all IPv4 addresses of this machine.
    public static func ipv4Any(port: UInt16) -> SocketAddress { ipv4(0, port: port) }

    /// ::, for binding to all IPv6 addresses of this machine, and to its IPv4 addresses unless the socket
    /// excludes them.
    public static func ipv6Any(port: UInt16) -> SocketAddress { ipv6(0, port: port) }

    /// The address of a Unix-domain socket without a name. Binding to it lets the kernel choose an abstract
    /// name; unix(7).
    public static let unixUnnamed = SocketAddress(.unix([]))
}

// MARK: - Parts

extension SocketAddress {
    /// An address family, as in `sa_family_t`; address_families(7).
    public struct Family: RawRepresentable, Sendable, Hashable {
        /// The kernel's number.
        public let rawValue: UInt16

        /// The family of that number.
        public init(rawValue: UInt16) { self.rawValue = rawValue }
    }

    /// The family of the address.
    public var family: Family {
        switch storage {
        case .ipv4: .ipv4
        case .ipv6: .ipv6
        case .unix: .unix
        case .other(let family, _): family
        }
    }

    /// The port of an IPv4 or IPv6 address.
    public var port: UInt16? {
        switch storage {
        case .ipv4(_, let port), .ipv6(_, let port, _, _): port
        case .unix, .other: nil
        }
    }

    /// The 32 bits of an IPv4 address.
    public var ipv4: UInt32? {
        guard case .ipv4(let address, _) = storage else { return nil }
        return address
    }

    /// The 128 bits of an IPv6 address.
    public var ipv6: UInt128? {
        guard case .ipv6(let address, _, _, _) = storage else { return nil }
        return address
    }

    /// The index of the interface that an IPv6 address belongs to; 0 for none.
    public var scope: UInt32? {
        guard case .ipv6(_, _, let scope, _) = storage else { return nil }
        return scope
    }

    /// The traffic class and flow label of an IPv6 address.
    package var flowInformation: UInt32? {
        guard case .ipv6(_, _, _, let flow) = storage else { return nil }
        return flow
    }
}

// MARK: - Families

extension SocketAddress.Family {
    /// No family, or any family (`AF_UNSPEC`).
    public static let unspecified = SocketAddress.Family(AF_UNSPEC)

    /// Unix-domain (`AF_UNIX`).
    public static let unix = SocketAddress.Family(AF_UNIX)

    /// IPv4 (`AF_INET`).
    public static let ipv4 = SocketAddress.Family(AF_INET)

    /// IPv6 (`AF_INET6`).
    public static let ipv6 = SocketAddress.Family(AF_INET6)

    private init(_ number: CInt) { self.init(rawValue: UInt16(number)) }
}

extension SocketAddress.Family: CustomStringConvertible {
    /// The name of the family, or its number.
    public var description: String {
        switch self {
        case .unspecified: "unspecified"
        case .unix: "Unix"
        case .ipv4: "IPv4"
        case .ipv6: "IPv6"
        default: "family \(rawValue)"
        }
    }
}

// MARK: - Classification

extension SocketAddress {
    /// Whether this is a loopback address: 127.0.0.0/8, also mapped into IPv6, or ::1.
    package var isLoopback: Bool { embeddedIPv4.map { $0 >> 24 == 127 } ?? (ipv6 == 1) }

    /// Whether this is the wildcard address 0.0.0.0 or ::.
    package var isAny: Bool { ipv4 == 0 || ipv6 == 0 }

    /// Whether this is a multicast address: 224.0.0.0/4 or ff00::/8.
    package var isMulticast: Bool {
        embeddedIPv4.map { $0 >> 28 == 0xe } ?? ipv6.map { $0 >> 120 == 0xff } ?? false
    }

    /// The IPv4 address, also if it is mapped into IPv6 (::ffff:0:0/96).
    package var embeddedIPv4: UInt32? {
        if let ipv4 { return ipv4 }
        guard let ipv6, ipv6 >> 32 == 0xffff else { return nil }
        return UInt32(truncatingIfNeeded: ipv6)
    }
}
