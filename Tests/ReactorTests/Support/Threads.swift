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
