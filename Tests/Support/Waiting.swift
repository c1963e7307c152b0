import Glibc
import Testing

/// Waits, off a loop, for what another thread does. No test passes by waiting: what never comes makes it fail, after a
/// quarter of an hour.
package func waitUntil(_ condition: () -> Bool) {
    let end = ContinuousClock.now + .seconds(900)
    // Asked only until it holds once: it may be over a moment later.
    while !condition() {
        guard ContinuousClock.now < end else {
            Issue.record("not so after a quarter of an hour")
            return
        }
        sched_yield()
    }
}

/// A thread as the kernel shows it in `/proc`.
package struct KernelThread: Sendable {
    private let path: String

    /// The thread that calls.
    package static var current: Self {
        var path = [CChar](repeating: 0, count: 64)
        let count = readlink("/proc/thread-self", &path, 63)
        precondition(count > 0, "/proc is not mounted")
        return Self(
            path: "/proc/" + String(decoding: path[..<count].map(UInt8.init(bitPattern:)), as: UTF8.self))
    }

    /// Whether the kernel has put it to sleep.
    package var isAsleep: Bool {
        guard let file = fopen(path + "/stat", "r") else { return false }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 256)
        // The state follows the name, the only field in parentheses.
        guard fgets(&line, 256, file) != nil, let name = line.lastIndex(of: 0x29) else { return false }
        return line[name + 2] == 0x53
    }
}
