import CReactorLinux
import Glibc
import SystemPackage

/// What a file turns out to be when it is opened.
enum FileKind {
    /// Always "ready", and as slow as its disk: moved off the loop's thread.
    case regular
    /// Not regular, but epoll does not take it: a device such as /dev/null or /dev/zero.
    case unwatchable
    /// A pipe, FIFO, terminal or device that the kernel tells of.
    case watchable
    case socket

    init(of holder: DescriptorHolder) throws(Errno) {
        self = try holder.use { (number) throws(Errno) in
            var status = stat()
            try SystemCall.make { unsafe fstat(number, &status) }
            switch status.st_mode & S_IFMT {
            case S_IFDIR: throw .isDirectory
            case S_IFREG: return .regular
            case S_IFSOCK: return .socket
            default: return reactor_epoll_takes(number) ? .watchable : .unwatchable
            }
        }
    }
}

/// Where a file comes from, and what it is used by.
struct FileOrigin {
    /// The path, and the flags to open it with; nil for a descriptor that was given.
    private let path: (FilePath, flags: CInt)?
    let holder: DescriptorHolder

    init(_ path: FilePath, _ flags: CInt) {
        self.path = (path, flags)
        holder = DescriptorHolder()
    }

    init(_ holder: DescriptorHolder) {
        path = nil
        self.holder = holder
    }

    /// Opens the file, and finds out what it is.
    func open() throws(Errno) -> FileKind {
        guard let (path, flags) = path else { return try FileKind(of: holder) }
        // Non-blocking, so that a FIFO opens at once; this file description is nobody else's.
        let number = try SystemCall.make {
            let flags = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY
            return unsafe path.withPlatformString { unsafe Glibc.open($0, flags, 0o666) }
        }
        holder.adopt(number)
        do throws(Errno) { return try FileKind(of: holder) } catch {
            holder.close()
            throw error
        }
    }

    /// Whether the file's offset can be set: it is regular, and, for a writer, O_APPEND does not override the offset.
    /// A path that leads nowhere yet counts as a regular file's.
    func isSeekable(_ access: Access) -> Bool {
        if let (path, flags) = path, holder.number < 0 {
            return (access == .reading || flags & O_APPEND == 0) && Self.mayBeRegular(path)
        }
        return (try? isDescriptorSeekable(access)) ?? false
    }

    private static func mayBeRegular(_ path: FilePath) -> Bool {
        var status = stat()
        let isKnown = unsafe path.withPlatformString { unsafe stat($0, &status) } == 0
        return !isKnown || status.st_mode & S_IFMT == S_IFREG
    }

    private func isDescriptorSeekable(_ access: Access) throws(Errno) -> Bool {
        try holder.use { (number) throws(Errno) in
            var status = stat()
            try SystemCall.make { unsafe fstat(number, &status) }
            guard status.st_mode & S_IFMT == S_IFREG else { return false }
            let flags = try SystemCall.make { fcntl(number, F_GETFL) }
            return access == .reading || flags & O_APPEND == 0
        }
    }

    enum Access { case reading, writing }
}
