import Reactor

/// A thread that runs the jobs of one test, and its run loop while there are none.
///
/// Jobs run outside the loop, so that a test may run the loop itself.
final class TestThread: TaskExecutor {
    private let name: String
    private let state = Mutex(State())
    /// Ends a run of the loop.
    private let wakeUp = RunLoop.Source {}

    private struct State {
        var jobs: [UnownedJob] = []
        var hasStarted = false
        var hasEnded = false
        var loop: RunLoop?
    }

    init(name: String) { self.name = name }

    /// The thread's loop, once the thread has started.
    var runLoop: RunLoop? { state.withLock { $0.loop } }

    func enqueue(_ job: consuming ExecutorJob) {
        // The runtime does not retain an executor: the job may end the test, and its thread, before this returns.
        let retained = CallbackContext.retain(self)
        defer { _ = unsafe CallbackContext.take(retained, as: TestThread.self) }
        let job = UnownedJob(job)
        let (isFirst, loop) = state.withLock { state in
            state.jobs.append(job)
            defer { state.hasStarted = true }
            return (!state.hasStarted, state.loop)
        }
        if isFirst { start() }
        wake(loop)
    }

    /// Ends the thread when it has run the jobs that are queued.
    func end() {
        let loop = state.withLock { state in
            state.hasEnded = true
            return state.loop
        }
        wake(loop)
    }

    private func start() {
        do {
            _ = try JoinableThread(name: name, receivesSignals: true) { [self] in run() }
        } catch {
            fatalError("A thread for the test \(name) cannot be started: \(error)")
        }
    }

    private func wake(_ loop: RunLoop?) {
        wakeUp.signal()
        loop?.wakeUp()
    }

    private func run() {
        let loop = RunLoop.current
        state.withLock { $0.loop = loop }
        while let jobs = nextJobs() {
            for job in jobs { unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
            if jobs.isEmpty { wait(on: loop) }
        }
    }

    /// The jobs to run now; nil when there will be no more.
    private func nextJobs() -> [UnownedJob]? {
        state.withLock { state in
            if state.jobs.isEmpty, state.hasEnded { return nil }
            defer { state.jobs = [] }
            return state.jobs
        }
    }

    /// Runs the loop until ``wakeUp`` is signalled. The source is not in the loop while the test's code runs.
    private func wait(on loop: RunLoop) {
        loop.add(wakeUp, forMode: .default)
        loop.run(in: .default, returnAfterSourceHandled: true)
        loop.remove(wakeUp, forMode: .default)
    }
}
