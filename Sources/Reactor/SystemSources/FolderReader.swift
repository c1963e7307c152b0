import Glibc
import SystemPackage

/// Reads the names in a watched folder, some at a time: opendir(3).
///
/// Safe: the stream is private, and closed by `deinit` only.
@safe final class FolderReader {
    /// Why a folder is read.
    enum Cause {
        /// A path was given: what it contains is known.
        case given
        /// It has appeared: what it contains is reported.
        case appeared
        /// Like ``appeared``, found on a second look.
        case missing
        /// Changes were lost.
        case overflow

        var isReported: Bool { self == .appeared || self == .missing }
    }

    /// The folder's number.
    let number: CInt
    let cause: Cause
    /// The names that have changed meanwhile: the changes say what became of them.
    var changed: Set<FileName> = []
    /// How many folders it has found.
    var folderCount = 0
    private let stream: OpaquePointer

    init(_ path: FilePath, _ number: CInt, _ cause: Cause) throws(Errno) {
        guard let stream = unsafe path.withPlatformString({ unsafe opendir($0) }) else {
            throw Errno(rawValue: errno)
        }
        unsafe self.stream = stream
        (self.number, self.cause) = (number, cause)
    }

    deinit { unsafe closedir(stream) }

    /// The next name, and whether it is a folder's and not a symbolic link's; nil at the end.
    func next() throws(Errno) -> (name: FileName, isFolder: Bool)? {
        while let entry = try unsafe nextEntry() {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
                unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) {
                    unsafe FilePath.Component(platformString: $0)
                }
            }
            guard let name, name.kind == .regular else { continue }
            let type = unsafe Int(entry.pointee.d_type)
            return (FileName(name), type == DT_UNKNOWN ? isFolder(name) : type == DT_DIR)
        }
        return nil
    }

    /// readdir(3), which returns the same at the end of a folder and on an error.
    private func nextEntry() throws(Errno) -> UnsafeMutablePointer<dirent>? {
        errno = 0
        let entry = unsafe readdir(stream)
        let code = errno
        if unsafe entry == nil, code != 0 { throw Errno(rawValue: code) }
        return unsafe entry
    }

    /// Asks a file system that does not say it in the folder.
    private func isFolder(_ name: FilePath.Component) -> Bool {
        var status = Glibc.stat()
        let result = unsafe FilePath(root: nil, [name]).withPlatformString {
            unsafe fstatat(dirfd(stream), $0, &status, AT_SYMLINK_NOFOLLOW)
        }
        return result == 0 && status.st_mode & S_IFMT == S_IFDIR
    }
}
