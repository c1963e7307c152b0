import Glibc
import SystemPackage

extension FilePath {
    /// The same path from the root: a process may change its current directory before it uses the path.
    ///
    /// - Throws: An error of getcwd(3): `Errno.noSuchFileOrDirectory` if the current directory was removed.
    package func absolute() throws(Errno) -> FilePath {
        if isAbsolute || isEmpty { return self }
        guard let name = unsafe getcwd(nil, 0) else { throw Errno(rawValue: errno) }
        defer { unsafe free(name) }
        return unsafe FilePath(platformString: name).appending(
            components.filter { $0.kind != .currentDirectory })
    }
}
