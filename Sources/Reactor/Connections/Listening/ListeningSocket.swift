import Glibc
import SystemPackage

/// A listening socket. Its deinit closes it, and removes the file that it has created unless ``removesFile`` is false.
struct ListeningSocket: ~Copyable {
    private let owned: OwnedDescriptor
    private var file: SocketFile?
    /// Whether the file is removed, if there is one.
    var removesFile: Bool {
        get { keepsFile ? false : file != nil }
        set { keepsFile = !newValue }
    }
    private var keepsFile = false
    /// The limit of pending connections.
    let backlog: Int

    var descriptor: FileDescriptor { FileDescriptor(rawValue: owned.number) }

    /// Listens at `address`.
    init(_ address: SocketAddress, _ options: Listener.Options) throws(Errno) {
        backlog = Int(options.listenBacklog)
        if address.port != nil, let network = currentTimeSource?.network {
            owned = OwnedDescriptor(
                try network.listen(
                    at: address, backlog: options.listenBacklog, isIPv6Only: options.isIPv6Only,
                    reusesPort: options.reusesPort
                ).rawValue)
            file = nil
            return
        }
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

    /// The file goes first: once the socket is closed, another server may take the path.
    deinit { if !keepsFile { file?.remove() } }

    /// Removes the file now, if ``removesFile`` says so.
    mutating func removeFileEarly() { if !keepsFile { file.take()?.remove() } }
}

extension FileDescriptor {
    fileprivate func prepareToListen(
        _ options: Listener.Options, _ family: SocketAddress.Family
    ) throws(Errno) {
        // Accepted sockets inherit them, which saves calls for each.
        options.connection.apply(to: self)
        if options.reusesPort { try setOption(SOL_SOCKET, SO_REUSEPORT, 1) }
        guard family == .ipv4 || family == .ipv6 else { return }
        if options.reusesAddress { try setOption(SOL_SOCKET, SO_REUSEADDR, 1) }
        if family == .ipv6 { try setOption(CInt(IPPROTO_IPV6), IPV6_V6ONLY, options.isIPv6Only ? 1 : 0) }
    }

    fileprivate func listen(_ options: Listener.Options) throws(Errno) {
        try SystemCall.make { Glibc.listen(rawValue, options.listenBacklog) }
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

extension FilePath {
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
    guard let number = try? SystemCall.open(path, O_RDONLY | O_DIRECTORY) else { return nil }
    let end = Deadline.now.advanced(by: lockTimeout)
    while flock(number, LOCK_EX | LOCK_NB) == -1, errno == EWOULDBLOCK || errno == EINTR, .now < end {
        usleep(lockRetryMicroseconds)
    }
    return OwnedDescriptor(number)
}
