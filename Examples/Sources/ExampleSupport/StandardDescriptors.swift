import Glibc
import SystemPackage

package enum StandardDescriptors {
    /// Opens those of the descriptors 0 to 2 that are closed (`<&-`, `>&-`), so that using them fails.
    ///
    /// Otherwise the next descriptor that the process opens would become its standard input or output. The
    /// replacements are opened for the wrong direction: reading or writing them fails with
    /// `Errno.badFileDescriptor`.
    package static func fillGaps() throws {
        for number in STDIN_FILENO...STDERR_FILENO where fcntl(number, F_GETFD) == -1 {
            // open(2) returns the lowest free number, which is this one.
            let wrongMode: FileDescriptor.AccessMode = number == STDIN_FILENO ? .writeOnly : .readOnly
            _ = try FileDescriptor.open(FilePath("/dev/null"), wrongMode)
        }
    }
}
