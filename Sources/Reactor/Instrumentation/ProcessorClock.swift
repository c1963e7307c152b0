import Glibc

/// The CPU time of one thread, readable from any thread.
final class ProcessorClock: Sendable {
    private enum State {
        /// The thread's clock, which lasts as long as the thread.
        case running(clockid_t)
        case ended(at: Int64)
    }

    private let state = Mutex(State.ended(at: 0))

    /// Begins with the calling thread.
    func begin() {
        var clock = clockid_t()
        guard unsafe pthread_getcpuclockid(pthread_self(), &clock) == 0 else { return }
        state.withLock { [clock] in $0 = .running(clock) }
    }

    /// Freezes the clock. Call before the thread exits: the kernel reuses thread IDs.
    func end() { state.withLock { $0 = .ended(at: Self.nanoseconds($0)) } }

    /// 0 before the beginning.
    var nanoseconds: Int64 { state.withLock { Self.nanoseconds($0) } }

    private static func nanoseconds(_ state: State) -> Int64 {
        switch state {
        case .ended(let time): return time
        case .running(let clock):
            var time = timespec()
            // Fails in a child of fork(2), which does not have the thread.
            guard unsafe clock_gettime(clock, &time) == 0 else { return 0 }
            return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
        }
    }
}
