import CReactorLinux
import Glibc
import Reactor

/// A thread that runs the jobs of one test, and its run loop while there are none.
///
/// Jobs run outside the loop, so that a test may run the loop itself.
final class TestThread: TaskExecutor {
    private let name: String
    private let state = Mutex(State())

    private struct State {
        var jobs: [UnownedJob] = []
        var hasStarted = false
        var hasEnded = false
        /// The depth of the run in which the thread waits for a job, or the end; nil while it does not.
        var waitDepth: Int?
        var loop: RunLoop?
        /// The kernel's number of the thread; 0 before it has started.
        var number: pid_t = 0

        /// Not by a source: a run that is nested in the wait would serve it, and the wait would continue.
        func endWait() { if let waitDepth { loop?.requestEnd(at: waitDepth) } }
    }

    init(name: String) { self.name = name }

    /// The thread's loop, once the thread has started.
    var runLoop: RunLoop? { state.withLock { $0.loop } }

    /// The kernel's number of the thread; 0 before it has started.
    var number: pid_t { state.withLock { $0.number } }

    func enqueue(_ job: consuming ExecutorJob) {
        // The runtime does not retain an executor: the job may end the test, and its thread, before this returns.
        let retained = CallbackContext.retain(self)
        defer { _ = unsafe CallbackContext.take(retained, as: TestThread.self) }
        let job = UnownedJob(job)
        let isFirst = state.withLock { state in
            state.jobs.append(job)
            state.endWait()
            defer { state.hasStarted = true }
            return !state.hasStarted
        }
        if isFirst { start() }
    }

    /// Ends the thread when it has run the jobs that are queued.
    func end() {
        state.withLock { state in
            state.hasEnded = true
            state.endWait()
        }
    }

    private func start() {
        do {
            _ = try JoinableThread(name: name, receivesSignals: true) { [self] in run() }
        } catch {
            fatalError("A thread for the test \(name) cannot be started: \(error)")
        }
    }

    private func run() {
        let loop = RunLoop.current
        let keeper = RunLoop.Source {}
        Leftovers.shared?.threadBegins(name)
        TaskThreads.testThreadBegins()
        defer {
            TaskThreads.testThreadEnds()
            Leftovers.shared?.threadEnds(name)
        }
        state.withLock { ($0.loop, $0.number) = (loop, reactor_thread_number()) }
        while true {
            // A test may have its loop hosted, which is a run too.
            let depth = loop.depth + 1
            guard let jobs = nextJobs(waitingAt: depth) else { return }
            for job in jobs { unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
            if jobs.isEmpty { wait(on: loop, at: depth, keeper) }
        }
    }

    /// The jobs to run now; nil when there will be no more. If there are none yet, the wait begins.
    private func nextJobs(waitingAt depth: Int) -> [UnownedJob]? {
        state.withLock { state in
            if state.jobs.isEmpty, state.hasEnded { return nil }
            if state.jobs.isEmpty { state.waitDepth = depth }
            defer { state.jobs = [] }
            return state.jobs
        }
    }

    /// Runs the loop. `keeper` keeps its mode from being empty, but is not in it while the test's code runs.
    private func wait(on loop: RunLoop, at depth: Int, _ keeper: RunLoop.Source) {
        loop.add(keeper, forMode: .default)
        loop.run(in: .default)
        loop.remove(keeper, forMode: .default)
        state.withLock { $0.waitDepth = nil }
        loop.withdrawEnd(at: depth)
    }
}
