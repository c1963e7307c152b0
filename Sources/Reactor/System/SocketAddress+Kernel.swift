public import Glibc
public import SystemPackage

// The kernel's form: sockaddr(3type), with the family first and the rest in network byte order.

extension SocketAddress {
    /// Reads an address in the kernel's form: as many bytes of it as the kernel said there are.
    ///
    /// Nil for what is too short for its family, and for more than a `sockaddr_storage` has.
    public init?(_ bytes: RawSpan) {
        guard let family = bytes.first(into: sa_family_t()),
            bytes.byteCount <= MemoryLayout<sockaddr_storage>.size
        else { return nil }
        switch CInt(family) {
        case AF_INET:
            guard let raw = bytes.first(into: sockaddr_in()) else { return nil }
            self = .ipv4(UInt32(bigEndian: raw.sin_addr.s_addr), port: UInt16(bigEndian: raw.sin_port))
        case AF_INET6:
            guard let raw = bytes.first(into: sockaddr_in6()) else { return nil }
            self = unsafe .ipv6(
                UInt128(bigEndian: unsafeBitCast(raw.sin6_addr, to: UInt128.self)),
                port: UInt16(bigEndian: raw.sin6_port), scope: raw.sin6_scope_id,
                flowInformation: UInt32(bigEndian: raw.sin6_flowinfo))
        case AF_UNIX:
            self.init(unixName: bytes.bytesAfterFamily)
        default:
            self.init(.other(Family(rawValue: family), bytes.bytesAfterFamily))
        }
    }

    /// A path ends at its first zero byte, if there is one; an abstract name has as many bytes as there are.
    private init(unixName name: [UInt8]) {
        let isAbstract = name.first == 0 && name.count > 1
        self.init(.unix(isAbstract ? name : Array(name.prefix { $0 != 0 })))
    }

    /// Reads an address in the kernel's form. Nil for what is too short for its family.
    ///
    /// - Parameters:
    ///   - address: Points to at least `length` bytes, which are read before this returns.
    ///   - length: How many bytes the address has, as the kernel said.
    public init?(_ address: UnsafePointer<sockaddr>, length: socklen_t) {
        let bytes = unsafe UnsafeRawBufferPointer(start: address, count: Int(length))
        self.init(unsafe bytes.bytes)
    }

    /// Calls `body` with the address in the kernel's form, and its length in bytes.
    ///
    /// The pointer is valid until `body` returns.
    public func withSockAddr<Result, Failure: Error>(
        _ body: (UnsafePointer<sockaddr>, socklen_t) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        switch storage {
        case .ipv4(let address, let port):
            var raw = sockaddr_in()
            raw.sin_family = sa_family_t(AF_INET)
            raw.sin_port = port.bigEndian
            raw.sin_addr.s_addr = address.bigEndian
            return try unsafe Self.lend(&raw, MemoryLayout.size(ofValue: raw), body)
        case .ipv6(let address, let port, let scope, let flow):
            var raw = sockaddr_in6()
            raw.sin6_family = sa_family_t(AF_INET6)
            raw.sin6_port = port.bigEndian
            raw.sin6_flowinfo = flow.bigEndian
            raw.sin6_addr = unsafe unsafeBitCast(address.bigEndian, to: in6_addr.self)
            raw.sin6_scope_id = scope
            return try unsafe Self.lend(&raw, MemoryLayout.size(ofValue: raw), body)
        case .unix(let name):
            // A path of all 108 bytes, which other programs may make, has no zero after it.
            let isPath = unixPathBytes != nil && name.count <= Self.longestUnixName
            return try unsafe Self.lend(.unix, name, isPath ? name.count + 1 : name.count, body)
        case .other(let family, let bytes):
            return try unsafe Self.lend(family, bytes, bytes.count, body)
        }
    }

    private static func lend<Raw, Result, Failure: Error>(
        _ raw: inout Raw, _ length: Int,
        _ body: (UnsafePointer<sockaddr>, socklen_t) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try unsafe withUnsafePointer(to: &raw) { (raw) throws(Failure) -> Result in
            try unsafe body(UnsafeRawPointer(raw).assumingMemoryBound(to: sockaddr.self), socklen_t(length))
        }
    }

    /// Lends a family and the bytes after it, of which there are never more than fit.
    private static func lend<Result, Failure: Error>(
        _ family: Family, _ bytes: [UInt8], _ count: Int,
        _ body: (UnsafePointer<sockaddr>, socklen_t) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var raw = sockaddr_storage()
        let offset = MemoryLayout<sa_family_t>.size
        unsafe withUnsafeMutableBytes(of: &raw) { raw in
            unsafe raw.storeBytes(of: family.rawValue, as: sa_family_t.self)
            for (index, byte) in bytes.enumerated() { unsafe raw[offset + index] = byte }
        }
        return try unsafe lend(&raw, offset + count, body)
    }
}

// MARK: - What a socket tells

extension SocketAddress {
    /// The address that `socket` is bound to, as the kernel has completed it; getsockname(2).
    ///
    /// - Throws: `Errno.badFileDescriptor`, or `Errno.notSocket`.
    public static func local(of socket: FileDescriptor) throws(Errno) -> SocketAddress {
        try unsafe filled { unsafe getsockname(socket.rawValue, $0, $1) }
    }

    /// The address that `socket` is connected to; getpeername(2).
    ///
    /// - Throws: `Errno.socketNotConnected`; `Errno.badFileDescriptor`, or `Errno.notSocket`.
    public static func peer(of socket: FileDescriptor) throws(Errno) -> SocketAddress {
        try unsafe filled { unsafe getpeername(socket.rawValue, $0, $1) }
    }

    /// The address that `call`, which is repeated when a signal interrupts it, writes where it is told.
    private static func filled(
        by call: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> CInt
    ) throws(Errno) -> SocketAddress {
        var raw = sockaddr_storage()
        return try unsafe withUnsafeMutablePointer(to: &raw) { (raw) throws(Errno) -> SocketAddress in
            let address = unsafe UnsafeMutableRawPointer(raw).assumingMemoryBound(to: sockaddr.self)
            var length = socklen_t()
            try SystemCall.make {
                length = socklen_t(MemoryLayout<sockaddr_storage>.size)
                return unsafe call(address, &length)
            }
            return unsafe SocketAddress(address, length: length) ?? SocketAddress(.other(.unspecified, []))
        }
    }
}

extension RawSpan {
    /// The first bytes, wherever they lie, as a plain value of the kernel's; nil if there are too few.
    fileprivate func first<Value>(into value: Value) -> Value? {
        var value = value
        guard byteCount >= MemoryLayout<Value>.size else { return nil }
        unsafe withUnsafeMutableBytes(of: &value) { target in
            unsafe withUnsafeBytes {
                unsafe target.copyMemory(from: .init(rebasing: $0.prefix(target.count)))
            }
        }
        return value
    }

    fileprivate var bytesAfterFamily: [UInt8] {
        unsafe withUnsafeBytes { unsafe Array($0.dropFirst(MemoryLayout<sa_family_t>.size)) }
    }
}
