import CReactorLinux
import Glibc
import SystemPackage

/// A socket that listens. Its end closes it, and removes the file that it has made.
struct ListeningSocket: ~Copyable {
    /// What came of trying to accept a connection.
    enum Accepted {
        case connection(FileDescriptor, SocketAddress)
        /// None waits.
        case none
        /// One has been lost before it could be accepted.
        case lost
        /// None can be accepted now.
        case fault(Errno)
    }

    private let owned: OwnedDescriptor
    private let file: BoundPath?
    /// The most connections that may wait at a time.
    let backlog: Int

    /// Listens at `address`.
    init(_ address: SocketAddress, _ options: Listener.Options) throws(Errno) {
        let type = SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue
        let owned = OwnedDescriptor(
            try SystemCall.make { socket(CInt(address.family.rawValue), CInt(type), 0) })
        let descriptor = FileDescriptor(rawValue: owned.number)
        try descriptor.prepareToListen(options, address.family)
        var file: BoundPath?
        if let path = address.unixPath {
            file = try descriptor.listen(atPath: path, address, options)
        } else {
            try descriptor.bind(to: address)
            try descriptor.listen(options)
        }
        backlog = Int(CInt(clamping: max(options.backlog, 0)))
        self.file = file
        self.owned = owned
    }

    /// Takes over a socket that listens already, and closes it if this fails.
    init(_ descriptor: FileDescriptor) throws(Errno) {
        let owned = OwnedDescriptor(descriptor.rawValue)
        guard try descriptor.option(SOL_SOCKET, SO_ACCEPTCONN) != 0 else { throw .invalidArgument }
        let flags = try SystemCall.make { fcntl(descriptor.rawValue, F_GETFL) }
        try SystemCall.make { fcntl(descriptor.rawValue, F_SETFL, flags | O_NONBLOCK) }
        try SystemCall.make { fcntl(descriptor.rawValue, F_SETFD, FD_CLOEXEC) }
        backlog = Listener.Options().backlog
        file = nil
        self.owned = owned
    }

    /// The file first, while the socket still listens: nobody takes the place of a server that is alive.
    deinit { file?.remove() }

    var descriptor: FileDescriptor { FileDescriptor(rawValue: owned.number) }

    var localAddress: SocketAddress {
        get throws(Errno) { try SocketAddress.local(of: descriptor) }
    }

    /// Accepts one connection, without waiting.
    func accept() -> Accepted {
        var raw = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        do throws(Errno) {
            let number = try SystemCall.make { unsafe reactor_accept(owned.number, &raw, &length) }
            return .connection(FileDescriptor(rawValue: number), Self.address(raw, length))
        } catch .resourceTemporarilyUnavailable {
            return .none
        } catch {
            return faultsOfConnection.contains(error.rawValue) ? .lost : .fault(error)
        }
    }

    private static func address(_ raw: sockaddr_storage, _ length: socklen_t) -> SocketAddress {
        let address = unsafe withUnsafeBytes(of: raw) {
            unsafe SocketAddress(UnsafeRawBufferPointer(rebasing: $0.prefix(Int(length))).bytes)
        }
        return address ?? SocketAddress(.other(.unspecified, []))
    }
}

extension FileDescriptor {
    fileprivate func prepareToListen(
        _ options: Listener.Options, _ family: SocketAddress.Family
    ) throws(Errno) {
        if options.reusesPort { try setOption(SOL_SOCKET, SO_REUSEPORT, 1) }
        guard family == .ipv4 || family == .ipv6 else { return }
        if options.reusesAddress { try setOption(SOL_SOCKET, SO_REUSEADDR, 1) }
        // Inherited by what is accepted: one call for all connections.
        if options.sendsAtOnce { try setOption(CInt(IPPROTO_TCP), TCP_NODELAY, 1) }
        if family == .ipv6 { try setOption(CInt(IPPROTO_IPV6), IPV6_V6ONLY, options.isIPv6Only ? 1 : 0) }
    }

    func bind(to address: SocketAddress) throws(Errno) {
        try SystemCall.make { unsafe address.withSockAddr { unsafe Glibc.bind(rawValue, $0, $1) } }
    }

    func connect(to address: SocketAddress) throws(Errno) {
        try SystemCall.make { unsafe address.withSockAddr { unsafe Glibc.connect(rawValue, $0, $1) } }
    }

    func listen(_ options: Listener.Options) throws(Errno) {
        try SystemCall.make { Glibc.listen(rawValue, CInt(clamping: max(options.backlog, 0))) }
    }
}

/// What accept(2) says when the one connection is lost, and the next may be a good one: what its manual page
/// lists, and what a firewall or a protocol's own limits may say.
private let faultsOfConnection: Set<CInt> = [
    ECONNABORTED, ECONNRESET, EPROTO, EPERM, ETIMEDOUT, ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH,
    ENONET,
    ENOPROTOOPT, EOPNOTSUPP, ENOSR, ESOCKTNOSUPPORT, EPROTONOSUPPORT,
]
