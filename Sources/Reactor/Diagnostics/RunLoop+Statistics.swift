extension RunLoop {
    /// The counts of what a loop has done since it was created.
    ///
    /// Counting is always on: it costs some 30 instructions of a pass with one callback. ``ledger``, ``callbackTime`` and the
    /// lateness of timers need a clock and names, and are filled only while ``LoopDiagnostics/measuresCallbacks`` is on.
    ///
    /// ```swift
    /// let before = RunLoop.main.statistics
    /// // …
    /// let wakeUps = RunLoop.main.statistics.wakeUps - before.wakeUps
    /// print(wakeUps == 0 ? "idle" : "woken \(wakeUps) times")
    /// ```
    public struct Statistics: Sendable, Hashable {
        /// The cost of one item. Items of the same name share an entry: without labels, and outside debug mode, all
        /// timers do.
        public struct LedgerEntry: Sendable, Hashable {
            /// The item, with its label; or the thread that has woken the loop.
            public var name: String
            /// How often it has woken the loop: how many sleeps were followed by its handler. Wake-ups without a handler, as
            /// for the deadline of a run, count for no item.
            public var wakeUps: Int
            /// How often its handler was called.
            public var callbacks: Int
            /// The elapsed time in its handler, waits included, without runs of the loop within it.
            public var time: Duration
            /// The longest call, as elapsed time.
            public var longest: Duration
        }

        /// Iterations of the loop, nested runs included.
        public var passes = 0
        /// Sleeps that a timer has ended, or the deadline of a run. A hosted loop's host sleeps in its place.
        public var wakeUpsByTime = 0
        /// Sleeps that a descriptor has ended.
        public var wakeUpsByDescriptor = 0
        /// Sleeps that another thread has ended: it had posted something, or called ``RunLoop/wakeUp()``.
        public var wakeUpsByThread = 0
        /// How often handlers have been called: of timers, events, sources and observers, posted blocks, and jobs of executors.
        public var callbacks = 0
        /// How many of these calls were of timers.
        public var timerFirings = 0
        /// How late timers have fired, added up, as far as it was measured.
        public var timerLateness = Duration.zero
        /// How late a timer has fired at most. A timer in a mode that does not run is late, too.
        public var greatestTimerLateness = Duration.zero
        /// Blocks that the loop has not taken in.
        public var pendingBlocks = 0
        /// Jobs that wait for the loop's executors. Those that other threads have given count as one for each executor until
        /// the loop takes them in.
        public var pendingJobs = 0
        /// CPU time of the loop's thread since it started; zero until it first uses its loop.
        ///
        /// Always on: the kernel counts (`CLOCK_THREAD_CPUTIME_ID`), and is asked only when the statistics are read. Unlike
        /// ``callbackTime`` this does not include waits, not even for a processor: divided by the time between two
        /// readings it is the thread's share of a processor.
        public var processorTime = Duration.zero
        /// The measurements, with the items first that have woken the loop most. After a thousand names the rest shares an
        /// entry.
        public var ledger: [LedgerEntry] = []

        /// How often the loop has slept, without a sleep in progress.
        public var wakeUps: Int { wakeUpsByTime + wakeUpsByDescriptor + wakeUpsByThread }

        /// The elapsed time in handlers, as far as it was measured: how long they kept the loop from doing anything else.
        ///
        /// It includes waits: for locks, disks and peers, and on a busy machine for a processor. ``processorTime`` does not.
        public var callbackTime: Duration { ledger.reduce(.zero) { $0 + $1.time } }
    }

    /// The counts so far. May be called from any thread at any time.
    ///
    /// The numbers are read one after the other while the loop keeps counting.
    public var statistics: Statistics {
        let meter = inbox.meter
        let measured = meter.measurements
        return Statistics(
            passes: meter.passes.value, wakeUpsByTime: meter.wakeUpsByTime.value,
            wakeUpsByDescriptor: meter.wakeUpsByDescriptor.value,
            wakeUpsByThread: meter.wakeUpsByThread.value,
            callbacks: timersAndBlocksCalled + meter.others.value, timerFirings: meter.timers.value,
            timerLateness: .nanoseconds(measured.lateness),
            greatestTimerLateness: .nanoseconds(measured.greatestLateness),
            pendingBlocks: inbox.pendingCounts.blocks,
            pendingJobs: executors.withLock { $0.reduce(0) { $0 + $1.queuedCount } },
            processorTime: .nanoseconds(meter.processorClock.nanoseconds),
            ledger: measured.accounts.map(Statistics.LedgerEntry.init).sorted(
                by: Statistics.LedgerEntry.precedes))
    }

    /// How many timers and blocks the loop has called.
    package var timersAndBlocksCalled: Int { inbox.meter.timers.value + inbox.meter.blocks.value }

    /// Whether the loop sleeps, and no thread has woken it.
    package var isAsleep: Bool { inbox.isWaiting && !inbox.isWokenByThread }

    /// Whether tasks may have jobs for the loop.
    package var hasExecutors: Bool { executors.withLock { !$0.isEmpty } }
}

extension RunLoop.Statistics.LedgerEntry {
    fileprivate init(name: String, _ account: LoopMeter.Account) {
        self.init(
            name: name, wakeUps: account.wakeUps, callbacks: account.callbacks,
            time: .nanoseconds(account.nanoseconds), longest: .nanoseconds(account.longest))
    }

    fileprivate static func precedes(_ left: Self, _ right: Self) -> Bool {
        (left.wakeUps, left.time, right.name) > (right.wakeUps, right.time, left.name)
    }
}
