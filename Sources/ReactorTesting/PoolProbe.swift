import Synchronization

/// Reports when the concurrency pool has run a chain of eight tasks, and so has had time for tasks that were queued before.
final class PoolProbe: Sendable {
    /// As many as a task that is woken takes steps in the pool before it waits on its loop again, and some more.
    private let left = Atomic(8)

    init() { step() }

    var hasPassed: Bool { left.load(ordering: .acquiring) <= 0 }

    private func step() {
        Task.detached { [self] in
            if left.subtract(1, ordering: .acquiringAndReleasing).newValue > 0 { step() }
        }
    }
}
