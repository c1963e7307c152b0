import Glibc
import SystemPackage

/// Messages to the developer, on standard error.
enum Diagnostics {
    /// Whether what looks like a mistake is reported: with `REACTOR_DEBUG=1` in the environment.
    static let isDebugging = unsafe getenv("REACTOR_DEBUG").map { unsafe String(cString: $0) } == "1"

    /// Writes a line that names the library.
    static func report(_ text: String) {
        _ = try? FileDescriptor.standardError.writeAll("Reactor: \(text)\n".utf8)
    }
}
