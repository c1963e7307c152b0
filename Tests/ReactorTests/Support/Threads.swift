import Glibc
import Synchronization

@testable import Reactor

extension RunLoop {
    /// Waits until the loop sleeps, so that what follows has to wake it.
    func untilAsleep() {
        while !isWaiting { sched_yield() }
    }
}

extension RunLoopThread {
    func untilAsleep() { runLoop.untilAsleep() }
}

/// Calls a closure when it is destroyed: where, and whether, others let go of it.
final class AtEnd: Sendable {
    private let action: @Sendable () -> Void

    init(_ action: @escaping @Sendable () -> Void) { self.action = action }

    deinit { action() }
}

/// Lets a thread wait until something has happened a number of times.
final class Countdown: Sendable {
    private let left: Atomic<Int>
    private let over = Answer<Void>()

    init(_ count: Int) { left = Atomic(count) }

    func count() {
        if left.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 { over.give(()) }
    }

    func wait() { over.wait() }
}

/// Runs `body` on `count` threads at once, which meet before they begin, and waits for all of them.
func onThreads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) {
    let met = Countdown(count)
    let threads = (0..<count).map { index in
        try? JoinableThread(name: "test \(index)") {
            met.count()
            met.wait()
            body(index)
        }
    }
    for thread in threads {
        precondition(thread != nil, "no thread for a test")
        thread?.join()
    }
}
