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

    /// Calls `action` on another thread once this loop, which is the calling thread's, sleeps in the kernel.
    func whenAsleep(_ action: @escaping @Sendable () -> Void) throws -> JoinableThread {
        let thread = KernelThread.current
        return try JoinableThread(name: "waker") {
            waitUntil { self.isWaiting && thread.isAsleep }
            action()
        }
    }
}

extension RunLoopThread {
    func untilAsleep() { runLoop.untilAsleep() }
}
