/// Where a socket is, or where it sends to: IPv4, IPv6, Unix-domain, or whatever else the kernel knows.
///
/// A plain value: an IP address takes no memory of its own. Two are equal if they are the same in every part. Ports
/// and numbers are in the host's byte order.
///
/// ```swift
/// let server = SocketAddress("[::1]:8080")
/// let everywhere = SocketAddress.ipv6Any(port: 8080)
/// let local = try SocketAddress(unixPath: "/run/service.sock")
/// ```
///
/// Text is numeric here; names are the ``Resolver``'s.
public struct SocketAddress: Sendable, Hashable {
    enum Storage: Sendable, Hashable {
        case ipv4(UInt32, port: UInt16)
        case ipv6(UInt128, port: UInt16, scope: UInt32, flow: UInt32)
        /// A path; an abstract name, which begins with a zero byte; or nothing.
        case unix([UInt8])
        /// What follows the family in the kernel's form.
        case other(Family, [UInt8])
    }

    let storage: Storage

    init(_ storage: Storage) { self.storage = storage }

    // MARK: Making

    /// Makes an IPv4 address, such as 0x7f00_0001 for 127.0.0.1; ip(7).
    public static func ipv4(_ address: UInt32, port: UInt16) -> SocketAddress {
        SocketAddress(.ipv4(address, port: port))
    }

    /// Makes an IPv6 address, such as 1 for ::1; ipv6(7).
    ///
    /// - Parameters:
    ///   - address: Its 128 bits.
    ///   - port: The port; zero where the kernel is to choose one.
    ///   - scope: The index of the interface that a link-local address belongs to; zero for none.
    ///   - flowInformation: The traffic class and flow label (RFC 2460); zero for most uses.
    public static func ipv6(
        _ address: UInt128, port: UInt16, scope: UInt32 = 0, flowInformation: UInt32 = 0
    ) -> SocketAddress {
        SocketAddress(.ipv6(address, port: port, scope: scope, flow: flowInformation))
    }

    /// 127.0.0.1: this machine.
    public static func ipv4Loopback(port: UInt16) -> SocketAddress { ipv4(0x7f00_0001, port: port) }

    /// ::1: this machine.
    public static func ipv6Loopback(port: UInt16) -> SocketAddress { ipv6(1, port: port) }

    /// 0.0.0.0: whatever IPv4 addresses this machine has, to be bound to.
    public static func ipv4Any(port: UInt16) -> SocketAddress { ipv4(0, port: port) }

    /// ::, whatever addresses this machine has, to be bound to: of IPv6, and of IPv4 too unless the socket is
    /// told otherwise.
    public static func ipv6Any(port: UInt16) -> SocketAddress { ipv6(0, port: port) }

    /// A Unix-domain socket's that has no name. Binding to it has the kernel choose an abstract one; unix(7).
    public static let unixUnnamed = SocketAddress(.unix([]))
}

// MARK: - Its parts

extension SocketAddress {
    /// A kind of address, as `sa_family_t` has it; address_families(7).
    public struct Family: RawRepresentable, Sendable, Hashable {
        /// The kernel's number.
        public let rawValue: UInt16

        /// Names a family by the kernel's number.
        public init(rawValue: UInt16) { self.rawValue = rawValue }
    }

    /// Which kind of address this is.
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

    /// The index of the interface that an IPv6 address belongs to; zero for none.
    public var scope: UInt32? {
        guard case .ipv6(_, _, let scope, _) = storage else { return nil }
        return scope
    }

    /// The traffic class and flow label of an IPv6 address.
    public var flowInformation: UInt32? {
        guard case .ipv6(_, _, _, let flow) = storage else { return nil }
        return flow
    }
}

// MARK: - What it means

extension SocketAddress {
    /// Whether this is an IP address of this machine alone: 127.0.0.0/8, as such or mapped into IPv6, or ::1.
    public var isLoopback: Bool { embeddedIPv4.map { $0 >> 24 == 127 } ?? (ipv6 == 1) }

    /// Whether this stands for all the machine's IP addresses: 0.0.0.0 or ::.
    public var isAny: Bool { ipv4 == 0 || ipv6 == 0 }

    /// Whether this is a group's IP address: 224.0.0.0/4 or ff00::/8.
    public var isMulticast: Bool {
        embeddedIPv4.map { $0 >> 28 == 0xe } ?? ipv6.map { $0 >> 120 == 0xff } ?? false
    }

    /// Whether this is an IP address that means something on one link only: 169.254.0.0/16 or fe80::/10.
    public var isLinkLocal: Bool {
        embeddedIPv4.map { $0 >> 16 == 0xa9fe } ?? ipv6.map { $0 >> 118 == 0x3fa } ?? false
    }

    /// The IPv4 address that this is, or that it stands for as the peer of an IPv6 socket (::ffff:0:0/96).
    private var embeddedIPv4: UInt32? {
        if let ipv4 { return ipv4 }
        guard let ipv6, ipv6 >> 32 == 0xffff else { return nil }
        return UInt32(truncatingIfNeeded: ipv6)
    }
}
