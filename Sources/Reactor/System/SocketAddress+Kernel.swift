import CReactorLinux
public import Glibc
public import SystemPackage

// The kernel's form: sockaddr(3type), with the family first and the rest in network byte order.

extension SocketAddress {
    /// Reads a `sockaddr` of as many bytes as the kernel reported.
    ///
    /// Nil if there are too few bytes for the family, or more than a `sockaddr_storage` has.
    public init?(_ bytes: RawSpan) {
        let familySize = MemoryLayout<sa_family_t>.size
        guard bytes.byteCount >= familySize, bytes.byteCount <= MemoryLayout<sockaddr_storage>.size else {
            return nil
        }
        let family = unsafe bytes.unsafeLoadUnaligned(as: sa_family_t.self)
        self.init(reactor_address(family, bytes.extracting(droppingFirst: familySize)))
    }

    /// Reads a `sockaddr`. Nil if `length` is too short for its family.
    ///
    /// - Parameters:
    ///   - address: A pointer to at least `length` bytes, which are copied.
    ///   - length: The length that the kernel reported.
    public init?(_ address: UnsafePointer<sockaddr>, length: socklen_t) {
        self.init(unsafe UnsafeRawBufferPointer(start: address, count: Int(length)).bytes)
    }

    /// Nil if the address is too short for its family.
    init?(_ raw: reactor_address) {
        let length = Int(raw.length)
        guard length >= MemoryLayout<sa_family_t>.size else { return nil }
        let family = reactor_address_family(raw)
        switch CInt(family) {
        case AF_INET:
            guard length >= MemoryLayout<sockaddr_in>.size else { return nil }
            let ip = reactor_address_ip(raw)
            self = .ipv4(UInt32(truncatingIfNeeded: ip.low), port: ip.port)
        case AF_INET6:
            guard length >= MemoryLayout<sockaddr_in6>.size else { return nil }
            let ip = reactor_address_ip(raw)
            self = .ipv6(
                UInt128(ip.high) << 64 | UInt128(ip.low), port: ip.port, scope: ip.scope,
                flowInformation: ip.flow)
        case AF_UNIX: self.init(unixName: raw.bytesAfterFamily)
        default: self.init(.other(Family(rawValue: family), raw.bytesAfterFamily))
        }
    }

    /// A path ends at its first zero byte, if it has one. An abstract name may contain zero bytes.
    private init(unixName name: [UInt8]) {
        let isAbstract = name.first == 0 && name.count > 1
        self.init(.unix(isAbstract ? name : Array(name.prefix { $0 != 0 })))
    }

    /// The address by value, for the functions in CReactorLinux.
    var raw: reactor_address {
        switch storage {
        case .ipv4(let address, let port): return reactor_address_ipv4(address, port)
        case .ipv6(let address, let port, let scope, let flow):
            let (high, low) = (UInt64(truncatingIfNeeded: address >> 64), UInt64(truncatingIfNeeded: address))
            return reactor_address_ipv6(
                reactor_ip(high: high, low: low, scope: scope, flow: flow, port: port))
        case .unix(let name):
            // A path that fills sun_path, which other programs may bind to, has no zero byte after it.
            let isPath = unixPathBytes != nil && name.count <= Self.unixNameLimit
            return Self.raw(.unix, isPath ? name + [0] : name)
        case .other(let family, let bytes): return Self.raw(family, bytes)
        }
    }

    private static func raw(_ family: Family, _ bytes: [UInt8]) -> reactor_address {
        bytes.withBytes { reactor_address(family.rawValue, $0) }
    }

    /// Calls `body` with the address as a `sockaddr` and its length in bytes.
    ///
    /// The pointer is valid until `body` returns.
    public func withSockAddr<Result, Failure: Error>(
        _ body: (UnsafePointer<sockaddr>, socklen_t) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        let raw = raw
        return try unsafe withUnsafeBytes(of: raw.storage) { (bytes) throws(Failure) -> Result in
            try unsafe body(
                bytes.assumingMemoryBound(to: sockaddr.self).baseAddress!, socklen_t(raw.length))
        }
    }
}

extension reactor_address {
    fileprivate init(_ family: sa_family_t, _ bytes: RawSpan) {
        self = bytes.withAddress { unsafe reactor_address_make(family, $0, $1) }
    }

    fileprivate var bytesAfterFamily: [UInt8] {
        unsafe withUnsafeBytes(of: storage) {
            unsafe Array($0.prefix(Int(length)).dropFirst(MemoryLayout<sa_family_t>.size))
        }
    }
}

// MARK: - The addresses of a socket

extension SocketAddress {
    /// The address that `socket` is bound to, as completed by the kernel; getsockname(2).
    ///
    /// - Throws: `Errno.badFileDescriptor`, or `Errno.notSocket`.
    public static func local(of socket: FileDescriptor) throws(Errno) -> SocketAddress {
        var raw = reactor_address()
        try SystemCall.make {
            raw = reactor_local_address(socket.rawValue)
            return raw.length
        }
        return SocketAddress(raw) ?? .unspecified
    }

    /// The address that `socket` is connected to; getpeername(2).
    ///
    /// - Throws: `Errno.socketNotConnected`; `Errno.badFileDescriptor`, or `Errno.notSocket`.
    public static func peer(of socket: FileDescriptor) throws(Errno) -> SocketAddress {
        var raw = reactor_address()
        try SystemCall.make {
            raw = reactor_peer_address(socket.rawValue)
            return raw.length
        }
        return SocketAddress(raw) ?? .unspecified
    }

    /// The address of a peer for which the kernel reports none.
    static let unspecified = SocketAddress(.other(.unspecified, []))
}
