import Glibc
import Testing

/// Waits without a loop until `condition`, which another thread makes true, holds. Records an issue after 15 minutes.
package func waitUntil(_ condition: () -> Bool) {
    let end = ContinuousClock.now + .seconds(900)
    // Not evaluated again once it is true: it may be false a moment later.
    while !condition() {
        guard ContinuousClock.now < end else {
            Issue.record("the condition was not met within 15 minutes")
            return
        }
        sched_yield()
    }
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
        guard let file = fopen(path + "/stat", "r") else { return false }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 256)
        // The state follows the name, the only field in parentheses.
        guard fgets(&line, 256, file) != nil, let name = line.lastIndex(of: 0x29) else { return false }
        return line[name + 2] == 0x53
    }
}
