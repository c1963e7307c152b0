import Reactor

/// Reports when the concurrency pool has run a chain of eight tasks, and so has had time for tasks that were queued before.
final class PoolProbe: Sendable {
    private static let latest = Mutex(Reference())
    /// As many as a task that is woken takes steps in the pool before it waits on its loop again, and some more.
    private let left = Mutex(8)

    private struct Reference {
        weak var probe: PoolProbe?
    }

    /// Begins, unless there is a probe already: it keeps threads of the pool busy, and others wait until they sleep.
    static func beginIfAlone() -> PoolProbe? {
        latest.withLock { latest in
            guard latest.probe == nil else { return nil }
            let probe = PoolProbe()
            latest.probe = probe
            probe.step()
            return probe
        }
    }

    private init() {}

    var hasPassed: Bool { left.withLock { $0 <= 0 } }

    private func step() {
        Task.detached { [self] in
            let isLast = left.withLock { left in
                left -= 1
                return left <= 0
            }
            if !isLast { step() }
        }
    }
}
