import Glibc
import Reactor

/// The identity of a socket port: its address and the kind of its socket.
///
/// The wire format is that of Apple's systems and of Foundation on Linux: a byte each for the family, the
/// type, the protocol and the address's length, then the address. IPv4 and IPv6 addresses have Darwin's
/// `sockaddr` layout.
struct PortSignature: Hashable, Sendable {
    /// The family, type and protocol of a socket (socket(2)).
    struct Kind: Hashable, Sendable {
        var family: Int32
        var type: Int32
        var transport: Int32

        static let tcp = Kind(
            family: PF_INET, type: Int32(SOCK_STREAM.rawValue), transport: Int32(IPPROTO_TCP))

        var isStream: Bool { type == Int32(SOCK_STREAM.rawValue) }
    }

    var kind: Kind
    var address: SocketAddress

    /// The signature in a message without a reply port.
    static let none = PortSignature(kind: .tcp, address: .ipv4Any(port: 0))

    // MARK: Wire format

    static let headerLength = 4
    private static let ipv4 = (length: 16, family: UInt8(2))
    private static let ipv6 = (length: 28, family: UInt8(30))

    init(kind: Kind, address: SocketAddress) {
        self.kind = kind
        self.address = address
    }

    /// Decodes a signature that takes up all of `bytes`.
    init?(_ bytes: ArraySlice<UInt8>) {
        let bytes = Array(bytes)
        guard bytes.count >= Self.headerLength, bytes.count == Self.headerLength + Int(bytes[3]),
            let address = Self.address(Array(bytes[Self.headerLength...]))
        else { return nil }
        self.init(
            kind: Kind(family: Int32(bytes[0]), type: Int32(bytes[1]), transport: Int32(bytes[2])),
            address: address)
    }

    /// The encoded signature; nil if a field does not fit into its byte.
    var bytes: [UInt8]? {
        let address = Self.bytes(address)
        guard let family = UInt8(exactly: kind.family), let type = UInt8(exactly: kind.type),
            let transport = UInt8(exactly: kind.transport), let length = UInt8(exactly: address.count)
        else { return nil }
        return [family, type, transport, length] + address
    }

    private static func address(_ bytes: [UInt8]) -> SocketAddress? {
        guard bytes.count >= 2 else { return nil }
        let port = bytes.count >= 4 ? UInt16(bytes[2]) << 8 | UInt16(bytes[3]) : 0
        switch (bytes.count, bytes[1]) {
        case (ipv4.length, ipv4.family) where Int(bytes[0]) == ipv4.length:
            return .ipv4(UInt32(bigEndian: bytes[4..<8]), port: port)
        case (ipv6.length, ipv6.family) where Int(bytes[0]) == ipv6.length:
            return .ipv6(
                UInt128(bigEndian: bytes[8..<24]), port: port,
                scope: UInt32(bigEndian: bytes[24..<28].reversed()),
                flowInformation: UInt32(bigEndian: bytes[4..<8]))
        default:
            // Unix-domain addresses stay on this machine and keep Linux's layout.
            guard let address = unsafe SocketAddress(bytes.span.bytes), address.family == .unix else {
                return nil
            }
            return address
        }
    }

    private static func bytes(_ address: SocketAddress) -> [UInt8] {
        let port = (address.port ?? 0).bigEndianBytes
        if let number = address.ipv4 {
            return [UInt8(ipv4.length), ipv4.family] + port + number.bigEndianBytes
                + [UInt8](repeating: 0, count: 8)
        }
        if let number = address.ipv6 {
            return [UInt8(ipv6.length), ipv6.family] + port + (address.flowInformation ?? 0).bigEndianBytes
                + number.bigEndianBytes + (address.scope ?? 0).bigEndianBytes.reversed()
        }
        return address.sockaddrBytes
    }
}

extension PortSignature {
    /// The port at which `peer`, whose signature this is, receives replies: on its own host, over its own
    /// address family. Nil if it names none.
    ///
    /// The address in the signature is often the wildcard address that the peer's listener is bound to. A peer
    /// that names another host or a socket file, which it may have no access to, must not make this process
    /// connect there.
    func replyPort(of peer: SocketAddress) -> PortSignature? {
        guard isReachable else { return nil }
        if let port = address.port { return PortSignature(host: peer, port: port) }
        return address.family == .unix && peer.family == .unix ? self : nil
    }

    /// The port as reachable from here. Addresses of this machine are reachable for peers on this machine only; the
    /// wildcard address is the peer's host.
    func component(of peer: SocketAddress) -> PortSignature {
        if address.isAny || address.embeddedIPv4 == 0, let port = address.port,
            let signature = PortSignature(host: peer, port: port)
        {
            return signature
        }
        let isLocal = address.family == .unix || address.isLoopback
        let isPeerLocal = peer.family == .unix || peer.isLoopback
        return isLocal && !isPeerLocal ? PortSignature(kind: kind, address: .unixUnnamed) : self
    }

    /// A TCP port on the host of `address`; nil if that is not an IP address.
    private init?(host address: SocketAddress, port: UInt16) {
        if let number = address.embeddedIPv4 {
            self.init(kind: .tcp, address: .ipv4(number, port: port))
        } else if let number = address.ipv6 {
            var kind = Kind.tcp
            kind.family = PF_INET6
            self.init(kind: kind, address: .ipv6(number, port: port, scope: address.scope ?? 0))
        } else {
            return nil
        }
    }

    /// Whether messages can be sent to the port.
    var isReachable: Bool { kind.isStream && address.port != 0 && address != .unixUnnamed }
}

extension SocketAddress {
    /// The bytes of the address as a Linux `sockaddr`.
    var sockaddrBytes: [UInt8] {
        unsafe withSockAddr { address, length in
            unsafe Array(UnsafeRawBufferPointer(start: address, count: Int(length)))
        }
    }
}

extension FixedWidthInteger where Self: UnsignedInteger {
    /// Creates an integer from its big-endian bytes.
    init(bigEndian bytes: some Sequence<UInt8>) {
        self = bytes.reduce(0) { $0 << 8 | Self($1) }
    }

    /// The integer's big-endian bytes.
    var bigEndianBytes: [UInt8] {
        (1...(Self.bitWidth / 8)).map { UInt8(truncatingIfNeeded: self >> (Self.bitWidth - 8 * $0)) }
    }
}
