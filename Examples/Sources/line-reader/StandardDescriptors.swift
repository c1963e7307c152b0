import Glibc
import SystemPackage

enum StandardDescriptors {
    /// Opens what the program was started without (`<&-`, `>&-`), in a way that cannot be used.
    ///
    /// Else the next descriptor that the process makes for itself would get the number, and be read for
    /// standard input. Like this, it is an error to read or write it: `Errno.badFileDescriptor`.
    static func fillGaps() throws {
        for number in STDIN_FILENO...STDERR_FILENO where fcntl(number, F_GETFD) == -1 {
            // The lowest free number is given first: it is this one.
            let useless: FileDescriptor.AccessMode = number == STDIN_FILENO ? .writeOnly : .readOnly
            _ = try FileDescriptor.open(FilePath("/dev/null"), useless)
        }
    }
}
