import Glibc
import Testing

/// How much an exhaustive or random test tries: everything if the environment has `REACTOR_SOAK=1`.
package enum Depth {
    package static let isFull = getenv("REACTOR_SOAK").map { String(cString: $0) } == "1"

    package static func of(full: Int, quick: Int) -> Int { isFull ? full : quick }
}

/// How long a helper waits before it gives up: longer than the limit of most tests, which fail by that, and end by this.
enum Patience {
    static let seconds = 60
}

/// Checks `condition` every millisecond until it is true; false if that takes too long.
func becomesTrue(_ condition: () -> Bool) -> Bool {
    let end = ContinuousClock.now + .seconds(Patience.seconds)
    // Not evaluated again once it is true: it may be false a moment later.
    while !condition() {
        guard ContinuousClock.now < end else { return false }
        usleep(1000)
    }
    return true
}

/// Waits without a loop until `condition`, which another thread or the kernel makes true, holds. Records an issue if that
/// takes too long.
///
/// For the kernel's state. For everything else there is an event to wait for: ``Shared/wait(for:)``.
package func waitUntil(
    fileID: String = #fileID, filePath: String = #filePath, line: Int = #line, column: Int = #column,
    _ condition: () -> Bool
) {
    if becomesTrue(condition) { return }
    let location = SourceLocation(fileID: fileID, filePath: filePath, line: line, column: column)
    Issue.record("The condition is not met after \(Patience.seconds) s.", sourceLocation: location)
}

/// A thread in `/proc`.
package struct KernelThread: Sendable {
    private let path: String

    /// The calling thread.
    package static var current: Self {
        var path = [CChar](repeating: 0, count: 64)
        let count = readlink("/proc/thread-self", &path, 63)
        precondition(count > 0, "/proc is not mounted")
        return Self(
            path: "/proc/" + String(decoding: path[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self))
    }

    /// Whether the thread sleeps in the kernel.
    package var isAsleep: Bool {
        // The state follows the name, the only field in parentheses.
        guard let line = content(of: path + "/stat"), let name = line.lastIndex(of: UInt8(ascii: ")")) else {
            return false
        }
        return line[name + 2] == UInt8(ascii: "S")
    }
}
