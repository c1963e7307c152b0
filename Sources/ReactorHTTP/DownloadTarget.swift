import Glibc
import Reactor

/// Where a download goes: into a regular file that replaces the one of its name, or into a FIFO or a device.
struct DownloadTarget {
    let path: FilePath
    /// Whether a file is made beside the path, and renamed when it is whole.
    let usesPartFile: Bool

    /// As many as the kernel follows.
    private static let mostLinks = 40

    init(_ path: FilePath) throws(Errno) {
        let type = (try? FileStatus.of(path))?.fileType ?? S_IFREG
        if type == S_IFDIR { throw .isDirectory }
        usesPartFile = type == S_IFREG
        // Leave /dev/stdout to the kernel: its pipe has no path.
        self.path = usesPartFile ? try Self.following(path) : path
    }

    /// Follows symbolic links, so that not a link is replaced but the file that it leads to.
    private static func following(_ path: FilePath) throws(Errno) -> FilePath {
        var path = path
        for _ in 0...mostLinks {
            guard let status = FileStatus.ofLink(path), status.fileType == S_IFLNK else { return path }
            path = try target(of: path, owner: status.st_uid)
        }
        throw .tooManySymbolicLinkLevels
    }

    /// As the kernel does in a sticky folder (proc_sys_fs(5), `protected_symlinks`), does not follow another user's link.
    private static func target(of link: FilePath, owner: uid_t) throws(Errno) -> FilePath {
        let folder = link.removingLastComponent()
        let status = try FileStatus.of(folder.isEmpty ? "." : folder)
        guard [geteuid(), 0, status.st_uid].contains(owner) else { throw .permissionDenied }
        var text = [CChar](repeating: 0, count: Int(PATH_MAX) + 1)
        try SystemCall.make(link) { unsafe CInt(readlink($0, &text, Int(PATH_MAX))) }
        return folder.pushing(FilePath(platformString: text))
    }
}

extension FilePath {
    /// The same path from the root; the path itself if the current directory was removed.
    var resolved: FilePath { (try? absolute()) ?? self }

    /// The path with `suffix` behind its last component's name.
    func appending(suffix: String) -> FilePath {
        unsafe withPlatformString { start in
            let count = unsafe strlen(start)
            let bytes = unsafe UnsafeBufferPointer(start: start, count: count)
            return unsafe FilePath(platformString: bytes + suffix.utf8.map { CChar(bitPattern: $0) } + [0])
        }
    }
}
