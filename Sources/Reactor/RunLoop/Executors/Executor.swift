import Synchronization

extension RunLoop {
    /// The loop's executor for Swift Concurrency: runs the jobs of actors and tasks on the loop's thread
    /// while the loop runs in one of `modes`.
    ///
    /// An actor lives on a loop if the loop's executor is its own:
    ///
    /// ```swift
    /// actor Connection {
    ///     private let executor: RunLoop.Executor
    ///     nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }
    ///
    ///     init(on loop: RunLoop) { executor = loop.executor() }
    /// }
    /// ```
    ///
    /// A task runs on it by preference: with `Task(executorPreference: loop.executor())` or
    /// `withTaskExecutorPreference(loop.executor())`, all its code runs on the loop's thread that is not
    /// isolated to an actor with an executor of its own.
    ///
    /// Each call with the same modes returns the same executor, which lives as long as the loop. From any
    /// thread.
    ///
    /// - Parameter modes: The modes to run jobs in: the common modes unless others are named. While the loop
    ///   runs in another mode the jobs wait, so callbacks that wait in a nested run for a job of the default
    ///   mode alone wait forever.
    /// - Precondition: There is at least one mode.
    public func executor(inModes modes: [Mode] = [.common]) -> Executor {
        require(!modes.isEmpty, "An executor in no mode would never run a job: name at least one mode.")
        let modes = ModeSet(modes)
        return executors.withLock { executors in
            if let known = executors.first(where: { $0.modes == modes }) { return known }
            let executor = Executor(self, modes)
            executors.append(executor)
            return executor
        }
    }

    /// Runs jobs of Swift Concurrency on a run loop's thread, as a serial executor for actors and as a task
    /// executor.
    ///
    /// ``RunLoop/executor(inModes:)`` returns a loop's executors.
    ///
    /// Jobs run where a pass runs its blocks, before these, one at a time in the order of their arrival. A
    /// pass runs the jobs that come in meanwhile too, up to a limit, and the next pass the rest. A job that
    /// runs the loop lets the nested run continue with the jobs after it, also with other jobs of the same
    /// actor: an actor that runs the loop in one of its methods finds its state changed afterwards, as it
    /// would after an `await`.
    ///
    /// The loop treats a job like a block that counts as a source: it wakes the loop, lets an activation begin,
    /// makes `run(mode:before:)` return, and does not keep a mode from being empty once the activation has
    /// begun.
    ///
    /// When the loop's thread ends, it runs the jobs that wait, whatever their modes, and those that they enqueue.
    /// Jobs that come later run on a thread of the library, still one at a time and in order. In debug mode the first
    /// of them is reported. See ``RunLoopThread/stop()`` for what becomes of tasks that wait.
    ///
    /// On the loop's thread, in callbacks too, `assumeIsolated` succeeds for each actor of the loop; after its end, in
    /// those later jobs.
    public final class Executor: SerialExecutor, TaskExecutor {
        let modes: ModeSet
        private let identity: LoopIdentity
        let isMain: Bool
        let inbox: Inbox
        /// Jobs from other threads, which the loop's thread takes all at once.
        private let incoming = Mutex(Queue<QueuedJob>())
        private let waiting: LoopBound<Waiting>
        /// Where tasks are parked that nothing else unparks when the loop ends.
        private let waits = Mutex<[ObjectIdentifier: TaskParker]>([:])
        /// The jobs that the library's thread runs after the loop's end.
        private let late = Mutex(Queue<QueuedJob>())
        /// How many jobs the loop's thread has taken in and not run.
        private let queued = LoopMeter.Counter()

        /// What only the loop's thread touches.
        private final class Waiting {
            var jobs = Queue<QueuedJob>()
            /// The last sweep that ran jobs of this executor.
            var sweep: UInt64 = 0
            /// The activation that is running jobs of this executor; 0 for none.
            var activation = 0
        }

        fileprivate init(_ loop: RunLoop, _ modes: ModeSet) {
            self.modes = modes
            (identity, isMain, inbox) = (loop.identity, loop.isMain, loop.inbox)
            waiting = LoopBound(Waiting(), owner: loop.identity)
        }

        // MARK: For the runtime

        /// Queues a job of an actor. From any thread.
        public func enqueue(_ job: consuming ExecutorJob) { queue(QueuedJob(job, for: .serial)) }

        /// Queues a job of an actor. Not called enqueue(_:), which is ambiguous here: both protocols require one.
        func resume(_ job: UnownedJob) { queue(QueuedJob(ExecutorJob(job), for: .serial)) }

        /// Queues a job of a task that prefers this executor. From any thread.
        @_implements(TaskExecutor,enqueue(_:))
        public func enqueueTaskJob(_ job: consuming ExecutorJob) { queue(QueuedJob(job, for: .task)) }

        /// Whether the calling thread is the loop's, or runs a job of the loop after that thread's end.
        public func isIsolatingCurrentContext() -> Bool? { isIsolated }

        /// Traps unless the calling thread is the loop's, or runs a job of the loop after that thread's end.
        public func checkIsolated() {
            require(
                isIsolated,
                "Code that is isolated to the \(inbox.loopName) runs on the loop's own thread, and not on "
                    + "\(currentThreadName).")
        }

        // MARK: Queueing

        var isCurrent: Bool { identity.isCurrent || (isMain && RunLoop.main.isCurrent) }

        /// All jobs of a loop run one after the other, also those of its other executors: so do the later ones.
        private var isIsolated: Bool { isCurrent || LateJobs.currentExecutor?.identity == identity }

        private func queue(_ job: QueuedJob) {
            if isCurrent, RunLoop.withCurrent({ $0.useCore { queue(job, in: $0) } }) { return }
            let isFirst = incoming.withLock { jobs in
                jobs.append(job)
                return jobs.count == 1
            }
            guard isFirst else { return }
            // The loop may run the job, end, and free this executor before `noteJobs` has returned true. The runtime
            // retains neither, and a plain reference to the inbox would rely on this executor. Until then, and if it
            // returns false, the executor exists: only the thread that found the queue empty lets others take
            // from it, and so run the job, which keeps the executor alive.
            let inbox = unsafe Unmanaged.passUnretained(inbox).retain()
            defer { unsafe inbox.release() }
            if unsafe !inbox._withUnsafeGuaranteedRef({ $0.noteJobs(of: self) }) { runIncomingLate() }
        }

        /// False if the loop has run its last job.
        private func queue(_ job: QueuedJob, in core: RunLoop.Core) -> Bool {
            if inbox.isClosed {
                if inbox.belongsToParent { ProcessIdentity.refuseParentsLoop() }
                if core.hasEnded { return false }
            }
            let waiting = waiting.value
            let wasEmpty = waiting.jobs.isEmpty
            waiting.jobs.append(job)
            queued.set(waiting.jobs.count)
            if wasEmpty { core.addWaiting(self) }
            // The sweep that runs this executor's jobs comes to it.
            if waiting.activation != inbox.activationCount || waiting.activation == 0 { inbox.requestPass() }
            return true
        }

        /// Whether `actor` lives on this executor.
        func serves(_ actor: any Actor) -> Bool { unsafe actor.unownedExecutor.asSerialExecutor() === self }

        /// Registers a wait at `parker` that the loop's end must end.
        ///
        /// - Returns: False if the loop has ended. Otherwise its end unparks the task.
        func beginWaiting(at parker: TaskParker) -> Bool {
            if inbox.belongsToParent { ProcessIdentity.refuseParentsLoop() }
            return waits.withLock { waits in
                // Locked, because the inbox is closed before `endWaits` locks this.
                guard !inbox.isClosed else { return false }
                waits[ObjectIdentifier(parker)] = parker
                return true
            }
        }

        func endWaiting(at parker: TaskParker) {
            _ = waits.withLock { $0.removeValue(forKey: ObjectIdentifier(parker)) }
        }

        /// Resumes the tasks that wait, because the loop has ended.
        func endWaits() { for parker in waits.withLock({ $0 }).values { parker.unparkLater() } }

        // MARK: For explanations, from any thread

        /// All that the loop has not taken in of other threads count as one.
        var queuedCount: Int { queued.value + (hasIncomingJobs ? 1 : 0) }

        var hasJobs: Bool { queuedCount > 0 }

        var hasIncomingJobs: Bool { incoming.withLock { !$0.isEmpty } }

        var suspendedCount: Int { waits.withLock { $0.count } }

        // MARK: On the loop's thread

        /// Takes in the jobs that other threads have pushed.
        func receiveJobs(in core: RunLoop.Core) {
            let waiting = waiting.value
            let wasEmpty = waiting.jobs.isEmpty
            incoming.withLock { waiting.jobs.takeAll(of: &$0) }
            queued.set(waiting.jobs.count)
            if wasEmpty, !waiting.jobs.isEmpty { core.addWaiting(self) }
        }

        fileprivate func isServed(in mode: RunLoop.RunningMode) -> Bool {
            modes.contains(mode.own.mode) || modes.contains(mode.common.mode)
        }

        fileprivate func wasServed(by sweep: UInt64) -> Bool { waiting.value.sweep == sweep }

        /// Runs the jobs, one at a time: a nested run in one of them continues with the rest.
        fileprivate func runJobs(in core: RunLoop.Core, sweep: UInt64) {
            let waiting = waiting.value
            let outer = waiting.activation
            (waiting.sweep, waiting.activation) = (sweep, inbox.activationCount)
            defer { waiting.activation = outer }
            // A thread that ends looks at the time after each job.
            for _ in 0..<(inbox.isClosed ? 1 : Self.jobsPerSweep) {
                guard let job = waiting.jobs.popFirst() else { break }
                queued.set(waiting.jobs.count)
                if waiting.jobs.isEmpty { core.removeWaiting(self) }
                core.meter.others.add()
                core.meter.call(.job, { pushJob(to: core.meter) }, { job.run(on: self) })
            }
            if !waiting.jobs.isEmpty { inbox.requestPass() }
        }

        private func pushJob(to meter: LoopMeter) { meter.push("job of the \(title)") }

        /// Large enough to batch calls between actors of the loop, and bounded so that jobs that enqueue each other cannot
        /// starve timers and descriptors.
        private static var jobsPerSweep: Int { 256 }

        // MARK: After the loop's end

        /// Leaves the jobs that the loop's thread has not run.
        func leaveJobs() {
            let left = exchange(&waiting.value.jobs, with: Queue<QueuedJob>())
            queued.set(0)
            LateJobs.perform { [self] in
                var left = left
                late.withLock { $0.takeAll(of: &left) }
                runLateJobs()
            }
        }

        /// Schedules the pushed jobs on the late thread. As with ``receiveJobs(in:)`` one call is made for each push onto
        /// the empty queue.
        private func runIncomingLate() {
            // First, because the jobs may free this executor.
            reportLateJobs()
            LateJobs.perform { [self] in
                var jobs = incoming.withLock { exchange(&$0, with: Queue<QueuedJob>()) }
                late.withLock { $0.takeAll(of: &jobs) }
                runLateJobs()
            }
        }

        private func runLateJobs() {
            for _ in 0..<Self.jobsPerSweep {
                guard let job = late.withLock({ $0.popFirst() }) else { return }
                LateJobs.run(job, on: self)
            }
            LateJobs.perform { [self] in runLateJobs() }
        }

        func reportLateJobs() {
            guard LoopDiagnostics.isReporting, inbox.beginReportOfLateJobs() else { return }
            LoopDiagnostics.report(
                .lateJob,
                "The \(inbox.loopName) has ended before its tasks: the thread 'reactor.late' runs their jobs. End the tasks "
                    + "first, or let RunLoopThread.shutDown(timeout:) wait longer for them.")
        }
    }
}

// MARK: - Serving

extension RunLoop.Core {
    /// Counts the executor's jobs in its modes, whose passes then run them.
    fileprivate func addWaiting(_ executor: RunLoop.Executor) {
        waitingExecutors.append(executor)
        count(1, in: executor.modes)
    }

    fileprivate func removeWaiting(_ executor: RunLoop.Executor) {
        guard let index = waitingExecutors.firstIndex(where: { $0 === executor }) else { return }
        waitingExecutors.remove(at: index)
        count(-1, in: executor.modes)
    }

    /// Runs the jobs that wait for the running mode; true if there were any.
    func runJobs(_ mode: RunLoop.RunningMode) -> Bool { runJobs { $0.isServed(in: mode) } }

    /// Runs the jobs that wait in those executors that are to be served; true if there were any.
    func runJobs(_ isToBeServed: (RunLoop.Executor) -> Bool) -> Bool {
        let sweep = nextSequence()
        var handled = false
        // Looked up anew each time: a job that runs the loop changes who waits.
        while let executor = waitingExecutors.first(where: { isToBeServed($0) && !$0.wasServed(by: sweep) }) {
            executor.runJobs(in: self, sweep: sweep)
            handled = true
        }
        return handled
    }
}

/// A job of Swift Concurrency that waits for its executor.
struct QueuedJob: Sendable {
    /// Which of an executor's two roles runs the job.
    enum Role { case serial, task }

    private let job: UnownedJob
    private let role: Role

    init(_ job: consuming ExecutorJob, for role: Role) { (self.job, self.role) = (UnownedJob(job), role) }

    /// Runs the job as `executor`'s. The job is gone after this.
    func run(on executor: RunLoop.Executor) {
        let serial = unsafe executor.asUnownedSerialExecutor()
        switch role {
        case .serial: unsafe job.runSynchronously(on: serial)
        case .task:
            unsafe job.runSynchronously(isolatedTo: serial, taskExecutor: executor.asUnownedTaskExecutor())
        }
    }
}
