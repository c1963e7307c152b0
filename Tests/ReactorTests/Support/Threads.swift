import Glibc
import Reactor

// The tests' own, where a test sees the library's, too.
typealias JoinableThread = ReactorTestSupport.JoinableThread
typealias Answer = ReactorTestSupport.Answer
typealias SystemCall = ReactorTestSupport.SystemCall

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
