import Glibc
import Synchronization

/// Runs the jobs that come after the end of their loop's thread, on a thread of the library.
///
/// All of them run on one thread. So the jobs of one loop stay in order and never overlap, whichever of its executors they
/// belong to, and code that is isolated to the loop's actors stays isolated.
enum LateJobs {
    private struct Running: Sendable {
        let executor: RunLoop.Executor
        /// The loop of the thread that runs the job.
        let runner: LoopIdentity
    }

    private static let thread = ResidentThread(name: "reactor.late")
    private static let running = Mutex<Running?>(nil)

    /// The executor whose job the calling thread runs; nil if it is another thread, or runs none.
    static var currentExecutor: RunLoop.Executor? {
        guard let running = running.withLock({ $0 }), running.runner.isCurrent else { return nil }
        return running.executor
    }

    /// Calls `body` on the thread, after what it has been given before.
    static func perform(_ body: @escaping @Sendable () -> Void) {
        while true {
            if let loop = try? thread.runLoop() { return loop.perform(body) }
            // There are too many threads. A job may not be dropped, so the caller waits, as libdispatch lets it.
            _ = usleep(retryMicroseconds)
        }
    }

    /// Runs `job`. Called on the thread.
    static func run(_ job: QueuedJob, on executor: RunLoop.Executor) {
        let outer = running.withLock { exchange(&$0, with: Running(executor: executor, runner: .current)) }
        job.run(on: executor)
        let inner = running.withLock { exchange(&$0, with: outer) }
        withExtendedLifetime(inner) {}
    }

    /// Short beside the life of a thread, and long enough to use little of the processor.
    private static var retryMicroseconds: UInt32 { 5_000 }
}
