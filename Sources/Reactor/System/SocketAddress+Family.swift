import Glibc

extension SocketAddress.Family {
    /// No family: of an empty address, and where any will do (`AF_UNSPEC`).
    public static let unspecified = SocketAddress.Family(AF_UNSPEC)

    /// Unix-domain sockets, of this machine (`AF_UNIX`).
    public static let unix = SocketAddress.Family(AF_UNIX)

    /// IPv4 (`AF_INET`).
    public static let ipv4 = SocketAddress.Family(AF_INET)

    /// IPv6 (`AF_INET6`).
    public static let ipv6 = SocketAddress.Family(AF_INET6)

    private init(_ number: CInt) { self.init(rawValue: UInt16(number)) }
}

extension SocketAddress.Family: CustomStringConvertible {
    /// The family's name, or its number.
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
