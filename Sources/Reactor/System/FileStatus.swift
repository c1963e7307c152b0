package import Glibc
package import SystemPackage

/// stat(2) of paths, whose bytes need not be UTF-8.
package enum FileStatus {
    package static func of(_ path: FilePath) throws(Errno) -> stat {
        var status = stat()
        try SystemCall.make(path) { unsafe stat($0, &status) }
        return status
    }

    /// Of what the path names, also if that is a symbolic link; nil if there is none.
    package static func ofLink(_ path: FilePath) -> stat? {
        var status = stat()
        return (try? SystemCall.make(path) { unsafe lstat($0, &status) }) == nil ? nil : status
    }

    package static func of(_ descriptor: CInt) throws(Errno) -> stat {
        var status = stat()
        try SystemCall.make { unsafe fstat(descriptor, &status) }
        return status
    }
}
