import Glibc
import SystemPackage

extension DatagramSocket {
    /// What is set when a socket is made; socket(7).
    public struct Options: Sendable, Hashable {
        /// The most bytes of a datagram that are kept. The default, 65,536, keeps all that UDP carries; less
        /// takes less memory. There is room for up to sixteen datagrams, in a megabyte or less, of which only
        /// what datagrams have filled is really taken.
        public var datagramLimit = 65_536
        /// Whether other sockets that say the same may be bound to the same address and port, as those that listen
        /// to one multicast group do (`SO_REUSEADDR`).
        public var reusesAddress = false
        /// Whether other sockets of this user that say the same may be bound to the same address and port, and the
        /// kernel shares the senders out among them (`SO_REUSEPORT`).
        public var reusesPort = false
        /// Whether it may send to broadcast addresses (`SO_BROADCAST`).
        public var allowsBroadcast = false
        /// Whether an IPv6 socket has nothing to do with IPv4 (`IPV6_V6ONLY`); nil leaves it as the system has
        /// it, which mostly is no.
        public var isIPv6Only: Bool?
        /// How many bytes the kernel keeps of what has come in (`SO_RCVBUF`); nil for its own choice. It takes
        /// this as a hint.
        public var receiveBufferSize: Int?
        /// How many bytes the kernel keeps of what is to go out (`SO_SNDBUF`); nil for its own choice. It takes
        /// this as a hint.
        public var sendBufferSize: Int?

        /// Makes options with the defaults.
        public init() {}
    }
}

extension FileDescriptor {
    /// A new socket of that family, which neither blocks nor is inherited by other programs.
    static func datagramSocket(_ family: SocketAddress.Family) throws(Errno) -> FileDescriptor {
        let type = SOCK_DGRAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue
        return FileDescriptor(
            rawValue: try SystemCall.make { socket(CInt(family.rawValue), CInt(type), 0) })
    }

    /// Sets what is asked for, if this is a datagram socket.
    func prepareForDatagrams(
        _ options: DatagramSocket.Options, _ family: SocketAddress.Family
    ) throws(Errno) {
        guard try option(SOL_SOCKET, SO_TYPE) == CInt(SOCK_DGRAM.rawValue) else {
            throw .protocolWrongTypeForSocket
        }
        if options.reusesAddress { try setOption(SOL_SOCKET, SO_REUSEADDR, 1) }
        if options.reusesPort { try setOption(SOL_SOCKET, SO_REUSEPORT, 1) }
        if options.allowsBroadcast { try setOption(SOL_SOCKET, SO_BROADCAST, 1) }
        if let isIPv6Only = options.isIPv6Only, family == .ipv6 {
            try setOption(CInt(IPPROTO_IPV6), IPV6_V6ONLY, isIPv6Only ? 1 : 0)
        }
        if let size = options.receiveBufferSize { try setOption(SOL_SOCKET, SO_RCVBUF, CInt(clamping: size)) }
        if let size = options.sendBufferSize { try setOption(SOL_SOCKET, SO_SNDBUF, CInt(clamping: size)) }
    }

    /// An option that is a number; getsockopt(2).
    func option(_ level: CInt, _ name: CInt) throws(Errno) -> CInt {
        var value: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        try SystemCall.make { unsafe getsockopt(rawValue, level, name, &value, &size) }
        return value
    }

    /// Sets an option that is a number; setsockopt(2).
    func setOption(_ level: CInt, _ name: CInt, _ value: CInt) throws(Errno) {
        var value = value
        let size = socklen_t(MemoryLayout<CInt>.size)
        try SystemCall.make { unsafe setsockopt(rawValue, level, name, &value, size) }
    }
}
