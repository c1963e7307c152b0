import CReactorLinux
public import Glibc
package import SystemPackage

// The kernel's form: sockaddr(3type), with the family first and the rest in network byte order.

extension SocketAddress {
    /// Reads a `sockaddr` of as many bytes as the kernel reported.
    ///
    /// Nil if there are too few bytes for the family, or more than a `sockaddr_storage` has.
    package init?(_ bytes: RawSpan) {
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
        let family = raw.number(at: 0, as: sa_family_t.self)
        switch CInt(family) {
        case AF_INET:
            guard length >= MemoryLayout<sockaddr_in>.size else { return nil }
            self = .ipv4(raw.number(at: 4, as: UInt32.self).bigEndian, port: raw.port)
        case AF_INET6:
            guard length >= MemoryLayout<sockaddr_in6>.size else { return nil }
            self = .ipv6(
                raw.number(at: 8, as: UInt128.self).bigEndian, port: raw.port,
                scope: raw.number(at: 24, as: UInt32.self),
                flowInformation: raw.number(at: 4, as: UInt32.self).bigEndian)
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
        case .ipv4(let address, let port):
            var raw = reactor_address(.ipv4, length: MemoryLayout<sockaddr_in>.size, port)
            raw.set(address.bigEndian, at: 4)
            return raw
        case .ipv6(let address, let port, let scope, let flow):
            var raw = reactor_address(.ipv6, length: MemoryLayout<sockaddr_in6>.size, port)
            raw.set(flow.bigEndian, at: 4)
            raw.set(address.bigEndian, at: 8)
            raw.set(scope, at: 24)
            return raw
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
    /// At most 126 bytes after the family.
    fileprivate init(_ family: sa_family_t, _ bytes: RawSpan) {
        self.init()
        set(family, at: 0)
        length = CInt(MemoryLayout<sa_family_t>.size + bytes.byteCount)
        unsafe withUnsafeMutableBytes(of: &storage) { storage in
            var room = unsafe UnsafeMutableRawBufferPointer(
                rebasing: storage[MemoryLayout<sa_family_t>.size...]
            )
            .mutableBytes
            _ = room.copy(bytes)
        }
    }

    /// An IP address without its own number.
    fileprivate init(_ family: SocketAddress.Family, length: Int, _ port: UInt16) {
        self.init()
        self.length = CInt(length)
        set(family.rawValue, at: 0)
        set(port.bigEndian, at: 2)
    }

    fileprivate func number<Number: FixedWidthInteger & BitwiseCopyable>(
        at offset: Int, as type: Number.Type
    ) -> Number {
        unsafe withUnsafeBytes(of: storage) { unsafe $0.loadUnaligned(fromByteOffset: offset, as: type) }
    }

    fileprivate var port: UInt16 { number(at: 2, as: UInt16.self).bigEndian }

    fileprivate mutating func set(_ number: some FixedWidthInteger & BitwiseCopyable, at offset: Int) {
        unsafe withUnsafeMutableBytes(of: &storage) {
            unsafe $0.storeBytes(of: number, toByteOffset: offset, as: type(of: number))
        }
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
    package static func local(of socket: FileDescriptor) throws(Errno) -> SocketAddress {
        if let address = currentTimeSource?.network?.localAddress(of: socket) { return address }
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
    package static func peer(of socket: FileDescriptor) throws(Errno) -> SocketAddress {
        if let address = currentTimeSource?.network?.peerAddress(of: socket) { return address }
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
