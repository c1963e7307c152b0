import Glibc
import SystemPackage

extension FileDescriptor {
    /// Binds to a Unix-domain path and listens, in place of a server that is no more.
    ///
    /// Between bind(2) and listen(2) a socket looks as if its server were gone: so listeners in one folder do
    /// this one after the other.
    func listen(
        atPath path: FilePath, _ address: SocketAddress, _ options: Listener.Options
    ) throws(Errno) -> BoundPath? {
        let turn = folderTurn(path.removingLastComponent())
        return try withExtendedLifetime(turn) { () throws(Errno) in
            do throws(Errno) { try bind(to: address) } catch .addressInUse {
                guard let file = BoundPath(path), isSocket(path), address.isAbandoned else {
                    throw .addressInUse
                }
                file.remove()
                try bind(to: address)
            }
            let file = BoundPath(path)
            do throws(Errno) {
                if let permissions = options.permissions { try set(permissions, of: path) }
                try listen(options)
            } catch {
                file?.remove()
                throw error
            }
            return file
        }
    }
}

private func isSocket(_ path: FilePath) -> Bool {
    var status = stat()
    let code = unsafe path.withPlatformString { unsafe lstat($0, &status) }
    return code == 0 && status.st_mode & S_IFMT == S_IFSOCK
}

private func set(_ permissions: FilePermissions, of path: FilePath) throws(Errno) {
    try SystemCall.make { unsafe path.withPlatformString { unsafe chmod($0, permissions.rawValue) } }
}

extension SocketAddress {
    /// Whether nobody listens at this Unix-domain address; if that cannot be told, somebody does.
    fileprivate var isAbandoned: Bool {
        let type = SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue
        do throws(Errno) {
            let probe = OwnedDescriptor(try SystemCall.make { socket(AF_UNIX, CInt(type), 0) })
            try SystemCall.make { unsafe withSockAddr { unsafe connect(probe.number, $0, $1) } }
            return false
        } catch {
            return error == .connectionRefused
        }
    }
}

// MARK: One after the other

/// Longer than anybody needs a folder's lock for listening: whoever has it for longer wants something else
/// with it.
private let patience = Duration.seconds(1)
private let microsecondsBetweenTries: UInt32 = 500

/// A folder's lock (flock(2)), which leaves no file behind: it ends with the descriptor. Waits for it, and
/// goes on without it where it cannot be had.
private func folderTurn(_ path: FilePath) -> OwnedDescriptor? {
    let path = path.isEmpty ? FilePath(".") : path
    let number = unsafe path.withPlatformString { unsafe open($0, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
    guard number >= 0 else { return nil }
    let end = Deadline.now.advanced(by: patience)
    while flock(number, LOCK_EX | LOCK_NB) == -1, errno == EWOULDBLOCK || errno == EINTR, .now < end {
        usleep(microsecondsBetweenTries)
    }
    return OwnedDescriptor(number)
}
