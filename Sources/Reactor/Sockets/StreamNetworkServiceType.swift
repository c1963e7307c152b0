import Glibc

/// What a socket stream is for: Cocoa's values of ``Stream/PropertyKey/networkServiceType``.
///
/// The socket's packets are marked for it (ip(7), `IP_TOS`; `IPV6_TCLASS`), by the table of RFC 4594; routers on the way
/// may heed that, and the kernel's own queues do. Other sockets than IPv4's and IPv6's take it and do nothing.
public struct StreamNetworkServiceTypeValue: RawRepresentable, Hashable, Sendable {
    /// Cocoa's name of the value.
    public let rawValue: String

    /// The value called `rawValue`.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The control of calls over the Internet: marked CS5. It wakes no program from its sleep, as it does on a phone.
    public static let voIP = Self(rawValue: "kCFStreamNetworkServiceTypeVoIP")
    /// Video: marked AF41.
    public static let video = Self(rawValue: "kCFStreamNetworkServiceTypeVideo")
    /// What has time: marked CS1.
    public static let background = Self(rawValue: "kCFStreamNetworkServiceTypeBackground")
    /// Speech: marked EF.
    public static let voice = Self(rawValue: "kCFStreamNetworkServiceTypeVoice")
    /// The signalling of calls: marked CS5.
    public static let callSignaling = Self(rawValue: "kCFStreamNetworkServiceTypeCallSignaling")

    /// The mark, a differentiated services code point; nil for a value that is none of these.
    private var codePoint: CInt? {
        switch self {
        case .voIP, .callSignaling: 40
        case .video: 34
        case .background: 8
        case .voice: 46
        default: nil
        }
    }

    /// The value that a property's value names; nil if it names none.
    init?(named value: Any?) {
        guard let name = propertyName(value) else { return nil }
        self.init(rawValue: name)
        if codePoint == nil { return nil }
    }

    /// Marks the packets of a socket.
    func mark(_ number: CInt) {
        // The lower two bits of the octet are the kernel's, for congestion.
        var octet = (codePoint ?? 0) << 2
        let size = socklen_t(MemoryLayout<CInt>.size)
        _ = unsafe setsockopt(number, CInt(IPPROTO_IP), IP_TOS, &octet, size)
        _ = unsafe setsockopt(number, CInt(IPPROTO_IPV6), IPV6_TCLASS, &octet, size)
    }
}
