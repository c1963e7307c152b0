import Glibc
import Synchronization

/// Runs the jobs that come after the end of their loop's thread, on a thread of the library.
///
/// All of them run on one thread, whatever time their callers have. So the jobs of one loop stay in order and never overlap,
/// whichever of its executors they belong to, and code that is isolated to the loop's actors stays isolated.
enum LateJobs {
    private struct Running: Sendable {
        let executor: RunLoop.Executor
        /// The loop of the thread that runs the job.
        let runner: LoopIdentity
    }

    private static let thread = ResidentThread(name: "reactor.late")
    private static let running = Mutex<Running?>(nil)
    private static let process = ProcessIdentity.current

    /// The executor whose job the calling thread runs; nil if it is another thread, or runs none.
    static var currentExecutor: RunLoop.Executor? {
        // In a child of fork(2), a thread of the parent may hold the lock.
        guard process.isCurrent, let running = running.withLock({ $0 }), running.runner.isCurrent else {
            return nil
        }
        return running.executor
    }

    /// Calls `body` on the thread, after what it has been given before.
    static func perform(_ body: @escaping @Sendable () -> Void) {
        start().perform(DispatchWorkers.noted(body))
    }

    /// Starts the thread, unless it runs.
    @discardableResult
    static func start() -> RunLoop {
        while true {
            if let loop = try? thread.runLoopInKernelTime() { return loop }
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

    /// Arbitrary; keeps the retry loop cheap.
    private static var retryMicroseconds: UInt32 { 5_000 }
}
