import Glibc
import Reactor

/// Where a download goes: into a regular file that replaces the one of its name, or into a FIFO or a device.
struct DownloadTarget {
    let path: String
    /// Whether a file is made beside the path, and renamed when it is whole.
    let isReplaced: Bool

    /// As many as the kernel follows.
    private static let mostLinks = 40

    init(_ path: FilePath) throws(Errno) {
        var status = stat()
        let type = unsafe stat(path.string, &status) == 0 ? status.st_mode.fileType : S_IFREG
        if type == S_IFDIR { throw .isDirectory }
        isReplaced = type == S_IFREG
        // The kernel follows links better: /dev/stdout leads to a pipe, which has no path.
        self.path = isReplaced ? try Self.following(path).string : path.string
    }

    /// Follows symbolic links, so that not a link is replaced but the file that it leads to.
    private static func following(_ path: FilePath) throws(Errno) -> FilePath {
        var path = path
        for _ in 0...mostLinks {
            var status = stat()
            guard unsafe lstat(path.string, &status) == 0, status.st_mode.fileType == S_IFLNK else {
                return path
            }
            path = try target(of: path, owner: status.st_uid)
        }
        throw .tooManySymbolicLinkLevels
    }

    /// As the kernel does in a sticky folder (proc_sys_fs(5), `protected_symlinks`), does not follow another user's link.
    private static func target(of link: FilePath, owner: uid_t) throws(Errno) -> FilePath {
        let folder = link.removingLastComponent()
        var status = stat()
        try SystemCall.make { unsafe stat(folder.isEmpty ? "." : folder.string, &status) }
        guard [geteuid(), 0, status.st_uid].contains(owner) else { throw .permissionDenied }
        let bytes = try unsafe [UInt8](unsafeUninitializedCapacity: Int(PATH_MAX)) {
            (buffer, count) throws(Errno) in
            count = try SystemCall.make {
                unsafe buffer.withMemoryRebound(to: CChar.self) {
                    unsafe readlink(link.string, $0.baseAddress!, $0.count)
                }
            }
        }
        return folder.pushing(FilePath(String(decoding: bytes, as: UTF8.self)))
    }
}

extension FilePath {
    /// The path relative to the working directory of now, whatever that is later.
    var resolvedOnce: FilePath {
        guard isRelative, let folder = unsafe getcwd(nil, 0) else { return self }
        defer { unsafe free(folder) }
        return unsafe FilePath(platformString: folder).pushing(self)
    }
}
