import Glibc
import SystemPackage

/// The file that binding a Unix-domain socket has created, which is removed when the socket is closed.
struct SocketFile {
    private let path: FilePath
    private let status: Glibc.stat
    private let process = ProcessIdentity.current

    /// Nil if there is no file at `path`. The process may change its current directory later.
    init?(_ path: FilePath) {
        guard let path = try? path.absolute(), let status = FileStatus.ofLink(path) else { return nil }
        (self.path, self.status) = (path, status)
    }

    var isSocket: Bool { status.st_mode & S_IFMT == S_IFSOCK }

    /// Removes the file, unless another one has replaced it. In a child of fork(2) the file is the parent's,
    /// and stays.
    func remove() {
        guard process.isCurrent, let current = FileStatus.ofLink(path) else { return }
        guard current.st_dev == status.st_dev, current.st_ino == status.st_ino else { return }
        try? SystemCall.unlink(path)
    }
}
