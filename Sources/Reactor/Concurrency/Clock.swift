import Synchronization

extension RunLoop {
    /// A clock whose sleeps are timers of this loop, in `modes`.
    ///
    /// ```swift
    /// let clock = RunLoop.main.clock()
    /// try await clock.sleep(for: .seconds(1), tolerance: .milliseconds(100))
    /// ```
    ///
    /// - Parameters:
    ///   - modes: The modes to wake in: the common modes unless others are named. While the loop runs in
    ///     another mode a task sleeps on, past its deadline.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    /// - Precondition: There is at least one mode.
    public func clock(
        inModes modes: [Mode] = [.common], file: StaticString = #fileID, line: UInt = #line
    ) -> Clock {
        Clock(self, executor(inModes: modes), file, line)
    }

    /// A run loop's monotonic clock: tasks sleep on it by timers of the loop.
    ///
    /// A task that the loop's thread runs, as one isolated to an actor of the loop or to the main actor,
    /// wakes inside the timer's callback: no other thread is involved. Sleeps whose tolerances overlap share
    /// a wake-up with each other and with the loop's timers. The clock stands still while the system sleeps.
    ///
    /// The loop has to run in one of the clock's modes for tasks to wake. When its thread ends, tasks that sleep
    /// get `CancellationError`, and so do those that are about to.
    public struct Clock: _Concurrency.Clock {
        private let loop: RunLoop
        private let executor: Executor
        private let file: StaticString
        private let line: UInt

        fileprivate init(_ loop: RunLoop, _ executor: Executor, _ file: StaticString, _ line: UInt) {
            (self.loop, self.executor, self.file, self.line) = (loop, executor, file, line)
        }

        /// The present moment.
        public var now: Deadline { loop.now }

        /// One nanosecond (timerfd_create(2)). The thread's timer slack usually adds 50 µs.
        public var minimumResolution: Duration { .nanoseconds(1) }

        /// Suspends the task until `deadline`, and returns at once if that has passed. Never early.
        ///
        /// - Parameters:
        ///   - deadline: When to wake.
        ///   - tolerance: How late the task may wake to share a wake-up with other timers. Default zero.
        /// - Throws: `CancellationError` as soon as the task is cancelled or the loop's thread ends.
        nonisolated(nonsending) public func sleep(until deadline: Deadline, tolerance: Duration? = nil)
            async throws
        {
            try Task.checkCancellation()
            guard deadline > now else { return }
            let parker = TaskParker(on: loop, executor)
            guard executor.beginWaiting(at: parker) else { throw CancellationError() }
            defer { executor.endWaiting(at: parker) }
            let timer = UnparkTimer(
                deadline, tolerance: tolerance ?? .zero, at: parker, file: file, line: line)
            defer { withExtendedLifetime(timer) {} }
            while deadline > now {
                await parker.park(isolation: #isolation)
                try Task.checkCancellation()
                if executor.inbox.isClosed { throw CancellationError() }
            }
        }

        /// Suspends the task for `duration`, as ``sleep(until:tolerance:)``.
        nonisolated(nonsending) public func sleep(for duration: Duration, tolerance: Duration? = nil)
            async throws
        {
            try await sleep(until: now.advanced(by: duration), tolerance: tolerance)
        }
    }
}
