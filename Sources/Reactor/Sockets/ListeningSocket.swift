import CReactorLinux
import Glibc
import SystemPackage

/// A listening socket. Its deinit closes it and removes the file that it has created.
struct ListeningSocket: ~Copyable {
    /// The result of one attempt to accept a connection.
    enum Accepted {
        case connection(FileDescriptor, SocketAddress)
        /// No connection is pending.
        case none
        /// A pending connection was lost.
        case lost
        /// No connection can be accepted now.
        case fault(Errno)
    }

    private let owned: OwnedDescriptor
    private var file: SocketFile?
    /// The limit of pending connections.
    let backlog: Int
    /// Whether the last connection took the last descriptor that is not reserved.
    private var isAtReserve = false

    /// Listens at `address`.
    init(_ address: SocketAddress, _ options: Listener.Options) throws(Errno) {
        let owned = OwnedDescriptor(try FileDescriptor.socket(address.family, SOCK_STREAM).rawValue)
        let descriptor = FileDescriptor(rawValue: owned.number)
        try descriptor.prepareToListen(options, address.family)
        var file: SocketFile?
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

    /// Takes ownership of a socket that listens already, and closes it if this fails.
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

    /// Removes the file first, while the socket still listens: otherwise another server could already have
    /// taken the path.
    deinit { file?.remove() }

    /// Removes the file that it has created, before it is closed.
    mutating func removeFile() {
        file?.remove()
        file = nil
    }

    var descriptor: FileDescriptor { FileDescriptor(rawValue: owned.number) }

    var localAddress: SocketAddress {
        get throws(Errno) { try SocketAddress.local(of: descriptor) }
    }

    /// Accepts one connection without blocking, unless only the reserved descriptors are left.
    mutating func accept() -> Accepted {
        var accepted = reactor_accepted()
        do throws(Errno) {
            if isAtReserve { try requireUnreserved() }
            try SystemCall.make {
                accepted = reactor_accept(owned.number)
                return accepted.descriptor
            }
            let descriptor = FileDescriptor(rawValue: accepted.descriptor)
            isAtReserve = Int(accepted.descriptor) >= Self.firstReserved() - 1
            return .connection(descriptor, SocketAddress(accepted.peer) ?? .unspecified)
        } catch .resourceTemporarilyUnavailable {
            return .none
        } catch {
            return connectionErrors.contains(error.rawValue) ? .lost : .fault(error)
        }
    }

    /// Fails if the next descriptor would be a reserved one.
    private mutating func requireUnreserved() throws(Errno) {
        let next = OwnedDescriptor(try SystemCall.make { fcntl(owned.number, F_DUPFD_CLOEXEC, 0) })
        guard Int(next.number) < Self.firstReserved() else { throw .tooManyOpenFiles }
        isAtReserve = false
    }

    /// The number from which descriptors are reserved. New descriptors have the lowest free numbers.
    private static func firstReserved() -> Int {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return .max }
        return Int(clamping: limit.rlim_cur) - Int(DispatchWorkers.reservedDescriptors)
    }
}

/// The errors of accept(2) that concern only the pending connection: those in its manual page, and those that
/// firewalls and protocols add.
private let connectionErrors: Set<CInt> = [
    ECONNABORTED, ECONNRESET, EPROTO, EPERM, ETIMEDOUT, ENETDOWN, ENETUNREACH, EHOSTDOWN, EHOSTUNREACH,
    ENONET, ENOPROTOOPT, EOPNOTSUPP, ENOSR, ESOCKTNOSUPPORT, EPROTONOSUPPORT,
]

extension FileDescriptor {
    fileprivate func prepareToListen(
        _ options: Listener.Options, _ family: SocketAddress.Family
    ) throws(Errno) {
        if options.reusesPort { try setOption(SOL_SOCKET, SO_REUSEPORT, 1) }
        guard family == .ipv4 || family == .ipv6 else { return }
        if options.reusesAddress { try setOption(SOL_SOCKET, SO_REUSEADDR, 1) }
        // Accepted sockets inherit it, which saves a call for each.
        if options.noDelay { try setOption(CInt(IPPROTO_TCP), TCP_NODELAY, 1) }
        if family == .ipv6 { try setOption(CInt(IPPROTO_IPV6), IPV6_V6ONLY, options.isIPv6Only ? 1 : 0) }
    }

    fileprivate func listen(_ options: Listener.Options) throws(Errno) {
        try SystemCall.make { Glibc.listen(rawValue, CInt(clamping: max(options.backlog, 0))) }
    }

    /// Binds to a Unix-domain path and listens. Replaces the socket file of a server that no longer runs.
    ///
    /// Between bind(2) and listen(2) a socket looks like that of a server that no longer runs. So listeners
    /// in one folder take turns.
    fileprivate func listen(
        atPath path: FilePath, _ address: SocketAddress, _ options: Listener.Options
    ) throws(Errno) -> SocketFile? {
        let lock = lockFolder(path.removingLastComponent())
        return try withExtendedLifetime(lock) { () throws(Errno) in
            do throws(Errno) { try bind(to: address) } catch .addressInUse {
                guard let file = SocketFile(path), file.isSocket, address.refusesConnections else {
                    throw .addressInUse
                }
                file.remove()
                try bind(to: address)
            }
            let file = SocketFile(path)
            do throws(Errno) {
                if let permissions = options.permissions { try path.setPermissions(permissions) }
                try listen(options)
            } catch {
                file?.remove()
                throw error
            }
            return file
        }
    }
}

// MARK: - Unix-domain paths

/// The file that binding a Unix-domain socket has created, which is removed when the socket is closed.
struct SocketFile {
    private let path: FilePath
    private let status: Glibc.stat
    private let process = ProcessIdentity.current

    /// Nil if there is no file at `path`. The process may change its current directory later.
    init?(_ path: FilePath) {
        guard let path = try? path.absolute(), let status = path.status else { return nil }
        (self.path, self.status) = (path, status)
    }

    var isSocket: Bool { status.st_mode & S_IFMT == S_IFSOCK }

    /// Removes the file, unless another one has replaced it. In a child of fork(2) the file is the parent's,
    /// and stays.
    func remove() {
        guard process.isCurrent, let current = path.status else { return }
        guard current.st_dev == status.st_dev, current.st_ino == status.st_ino else { return }
        _ = try? SystemCall.make(path) { unsafe unlink($0) }
    }
}

extension FilePath {
    /// lstat(2).
    fileprivate var status: Glibc.stat? {
        var status = Glibc.stat()
        let result = try? SystemCall.make(self) { unsafe lstat($0, &status) }
        return result == nil ? nil : status
    }

    fileprivate func setPermissions(_ permissions: FilePermissions) throws(Errno) {
        try SystemCall.make(self) { unsafe chmod($0, permissions.rawValue) }
    }
}

extension SocketAddress {
    /// Whether no server listens at this Unix-domain address. False if that cannot be found out.
    fileprivate var refusesConnections: Bool {
        do throws(Errno) {
            let probe = OwnedDescriptor(try FileDescriptor.socket(.unix, SOCK_STREAM).rawValue)
            try FileDescriptor(rawValue: probe.number).connect(to: self)
            return false
        } catch {
            return error == .connectionRefused
        }
    }
}

/// Longer than a listener needs the lock: after that, other software holds it.
private let lockTimeout = Duration.seconds(1)
private let lockRetryMicroseconds: UInt32 = 500

/// Locks a folder (flock(2)), which leaves no file behind. The lock ends with the descriptor. Nil if the
/// folder cannot be opened; after ``lockTimeout`` the descriptor is returned without the lock.
private func lockFolder(_ path: FilePath) -> OwnedDescriptor? {
    let path = path.isEmpty ? FilePath(".") : path
    let flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC
    guard let number = try? SystemCall.make(path, { unsafe open($0, flags) }) else { return nil }
    let end = Deadline.now.advanced(by: lockTimeout)
    while flock(number, LOCK_EX | LOCK_NB) == -1, errno == EWOULDBLOCK || errno == EINTR, .now < end {
        usleep(lockRetryMicroseconds)
    }
    return OwnedDescriptor(number)
}
