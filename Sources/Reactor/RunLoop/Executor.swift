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
    /// begun. A job that arrives after the loop's thread has ended, and a job that still waits then, ends the
    /// process with a message: a job that never ran would leave its task suspended forever.
    ///
    /// On the loop's thread, in callbacks too, `assumeIsolated` succeeds for each actor of the loop.
    public final class Executor: SerialExecutor, TaskExecutor {
        let modes: ModeSet
        private let identity: LoopIdentity
        let isMain: Bool
        let inbox: Inbox
        private let incoming = JobStack()
        private let waiting: LoopBound<Waiting>
        /// How many tasks wait for something that only the loop ends.
        private let suspended = Atomic(0)
        /// How many jobs the loop's thread has taken in and not run.
        private let queued = LoopMeter.Counter()

        /// What only the loop's thread touches.
        private final class Waiting {
            var jobs = JobQueue()
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

        /// Whether the calling thread is the loop's.
        public func isIsolatingCurrentContext() -> Bool? { isCurrent }

        /// Traps unless the calling thread is the loop's.
        public func checkIsolated() {
            require(
                isCurrent,
                "Code that is isolated to the \(inbox.loopName) runs on the loop's own thread, and not on "
                    + "\(currentThreadName).")
        }

        // MARK: Queueing

        var isCurrent: Bool { identity.isCurrent || (isMain && RunLoop.main.isCurrent) }

        private func queue(_ job: QueuedJob) {
            if isCurrent { return RunLoop.withCurrent { $0.useCore { queue(job, in: $0) } } }
            guard incoming.push(job) else { return }
            // The loop may run the job, end, and free this executor before `noteJobs` has returned. The runtime
            // retains neither, and a plain reference to the inbox would rely on this executor. An inbox that is
            // not closed belongs to a loop that has not ended, so `noteJobs` appends an executor that exists;
            // once it is closed, only the inbox is used.
            let inbox = unsafe Unmanaged.passUnretained(inbox).retain()
            defer { unsafe inbox.release() }
            unsafe inbox._withUnsafeGuaranteedRef { if !$0.noteJobs(of: self) { $0.refuseJob() } }
        }

        private func queue(_ job: QueuedJob, in core: RunLoop.Core) {
            if inbox.isClosed { inbox.refuseJob() }
            let waiting = waiting.value
            let wasEmpty = waiting.jobs.isEmpty
            waiting.jobs.append(job)
            queued.set(waiting.jobs.count)
            if wasEmpty { core.addWaiting(self) }
            // The sweep that runs this executor's jobs comes to it.
            if waiting.activation != inbox.activationCount || waiting.activation == 0 { inbox.requestPass() }
        }

        /// Whether `actor` lives on this executor.
        ///
        /// The first word of an executor's reference is its address (`SerialExecutorRef` in
        /// swift/ABI/Executor.h).
        func serves(_ actor: any Actor) -> Bool {
            let address = unsafe unsafeBitCast(actor.unownedExecutor, to: (UInt, UInt).self).0
            return address == UInt(bitPattern: ObjectIdentifier(self))
        }

        /// Notes that a task is about to wait for something that only the loop ends: the loop must not end
        /// before.
        ///
        /// The count changes first. Either ``checkFinished()``, which changes it too, finds the task, or this
        /// synchronizes with it and finds the inbox closed.
        func beginWaiting() {
            suspended.add(1, ordering: .acquiringAndReleasing)
            if inbox.isClosed { inbox.refuseJob() }
        }

        func endWaiting() { suspended.subtract(1, ordering: .relaxed) }

        // MARK: For explanations, from any thread

        /// All that the loop has not taken in of other threads count as one.
        var queuedCount: Int { queued.value + (incoming.isEmpty ? 0 : 1) }

        var hasJobs: Bool { queuedCount > 0 }

        var hasIncomingJobs: Bool { !incoming.isEmpty }

        var suspendedCount: Int { suspended.load(ordering: .relaxed) }

        // MARK: On the loop's thread

        /// Takes in the jobs that other threads have pushed.
        func receiveJobs(in core: RunLoop.Core) {
            let waiting = waiting.value
            let wasEmpty = waiting.jobs.isEmpty
            waiting.jobs.append(incoming)
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
            for _ in 0..<Self.jobsPerSweep {
                guard let job = waiting.jobs.popFirst() else { break }
                queued.set(waiting.jobs.count)
                if waiting.jobs.isEmpty { core.removeWaiting(self) }
                core.meter.jobs.add()
                core.meter.measure({ pushJob(to: core.meter) }, { job.run(on: self) })
            }
            if !waiting.jobs.isEmpty { inbox.requestPass() }
        }

        @inline(never)
        private func pushJob(to meter: LoopMeter) { meter.push("job of the \(title)") }

        /// So many that a chain of calls between actors of the loop takes few system calls, and so few that
        /// jobs that enqueue each other do not keep timers and descriptors waiting.
        private static var jobsPerSweep: Int { 256 }

        /// Traps if jobs or tasks wait while the loop ends.
        fileprivate func checkFinished() {
            let tasks = suspended.add(0, ordering: .acquiringAndReleasing).newValue
            let jobs = waiting.value.jobs.count
            require(
                jobs == 0 && tasks == 0,
                "The thread of the \(inbox.loopName) has ended with \(counted(jobs, "job")) queued and "
                    + "\(counted(tasks, "task")) suspended: "
                    + "end the tasks before the thread.")
        }
    }
}

// MARK: - Serving

extension RunLoop.Core {
    /// Lets the passes of the executor's modes know that it has jobs.
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
    @inline(never)
    func runJobs(_ mode: RunLoop.RunningMode) -> Bool {
        let sweep = nextSequence()
        var handled = false
        // Looked up anew each time: a job that runs the loop changes who waits.
        while let executor = waitingExecutors.first(where: {
            $0.isServed(in: mode) && !$0.wasServed(by: sweep)
        }) {
            executor.runJobs(in: self, sweep: sweep)
            handled = true
        }
        return handled
    }

    /// Runs the jobs that wait for `mode`, and those that they enqueue, before the loop's thread ends.
    func finishJobs(in mode: RunLoop.Mode) {
        repeat { drainInbox() } while runJobs(running(mode))
    }

    /// Traps if jobs or tasks wait while the loop ends.
    func checkJobsFinished() {
        for executor in loop.executors.withLock({ $0 }) { executor.checkFinished() }
    }
}
