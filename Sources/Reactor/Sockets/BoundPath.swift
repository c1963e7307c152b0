import Glibc
import SystemPackage

/// The file that binding a Unix-domain socket has made, to be removed when the socket is closed.
struct BoundPath {
    private let path: FilePath
    private let device: dev_t
    private let number: ino_t
    private let process = ProcessIdentity.current

    /// Nil if there is no such file, or no longer.
    init?(_ path: FilePath) {
        guard let status = Self.status(of: path) else { return nil }
        (self.path, device, number) = (path, status.st_dev, status.st_ino)
    }

    /// Removes the file, unless another has taken its place. A child of fork(2) leaves its parent's.
    func remove() {
        guard process.isCurrent, let status = Self.status(of: path) else { return }
        guard status.st_dev == device, status.st_ino == number else { return }
        _ = unsafe path.withPlatformString { unsafe unlink($0) }
    }

    private static func status(of path: FilePath) -> stat? {
        var status = stat()
        let code = unsafe path.withPlatformString { unsafe lstat($0, &status) }
        return code == 0 ? status : nil
    }
}
