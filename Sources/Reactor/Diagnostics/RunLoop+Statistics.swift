extension RunLoop {
    /// What a loop has done since it was made, as numbers.
    ///
    /// Counting is always on: it costs some 30 instructions of a pass with one callback. ``ledger``, ``callbackTime`` and the
    /// lateness of timers need a clock and names, and are filled only while ``LoopDiagnostics/measuresCallbacks`` is on.
    ///
    /// ```swift
    /// let before = RunLoop.main.statistics
    /// // …
    /// let wakeUps = RunLoop.main.statistics.wakeUps.total - before.wakeUps.total
    /// print(wakeUps == 0 ? "idle" : "woken \(wakeUps) times")
    /// ```
    public struct Statistics: Sendable, Hashable {
        /// What has ended the loop's sleeps. A sleep counts under one of these.
        public struct WakeUps: Sendable, Hashable {
            /// A timer was due, or the deadline of a run.
            public var byTime = 0
            /// A descriptor was ready.
            public var byDescriptor = 0
            /// Another thread had posted something, or called ``RunLoop/wakeUp()``.
            public var byThread = 0

            /// All of them.
            public var total: Int { byTime + byDescriptor + byThread }
        }

        /// How often handlers have been called.
        public struct Callbacks: Sendable, Hashable {
            /// Timers.
            public var timers = 0
            /// Descriptor sources, signal sources, listeners, sockets, streams' delegates and drains of the main queue.
            public var events = 0
            /// Signalled sources, mailboxes among them.
            public var sources = 0
            /// Observers, and blocks with an order.
            public var observers = 0
            /// Posted blocks.
            public var blocks = 0
            /// Jobs of executors.
            public var jobs = 0

            /// All of them.
            public var total: Int { timers + events + sources + observers + blocks + jobs }
        }

        /// What waits for the loop's thread.
        public struct Pending: Sendable, Hashable {
            /// Blocks that the loop has not taken in.
            public var blocks = 0
            /// Changes by other threads, as additions and removals.
            public var changes = 0
            /// Signals of sources.
            public var signals = 0
            /// Jobs of the loop's executors. Those that other threads have given count as one for each executor until the
            /// loop takes them in.
            public var jobs = 0
        }

        /// What one item has cost. Items of the same name share an entry: without labels, and outside debug mode, all
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
        /// What has ended the loop's sleeps: together, how often it has slept, without a sleep in progress. A hosted loop's
        /// host sleeps in its place.
        public var wakeUps = WakeUps()
        /// How often handlers have been called.
        public var callbacks = Callbacks()
        /// How late timers have fired, added up, as far as it was measured.
        public var timerLateness = Duration.zero
        /// How late a timer has fired at most. A timer in a mode that does not run is late, too.
        public var greatestTimerLateness = Duration.zero
        /// What waits now.
        public var pending = Pending()
        /// CPU time of the loop's thread since it started; zero until it first uses its loop.
        ///
        /// Always on: the kernel counts (`CLOCK_THREAD_CPUTIME_ID`), and is asked only when the statistics are read. Unlike
        /// ``callbackTime`` this does not include waits, not even for a processor: divided by the time between two
        /// readings it is the thread's share of a processor.
        public var processorTime = Duration.zero
        /// What has been measured, the items that have woken the loop most first. After a thousand names the rest shares an
        /// entry.
        public var ledger: [LedgerEntry] = []

        /// The elapsed time in handlers, as far as it was measured: how long they kept the loop from doing anything else.
        ///
        /// It includes waits: for locks, disks and peers, and on a busy machine for a processor. ``processorTime`` does not.
        public var callbackTime: Duration { ledger.reduce(.zero) { $0 + $1.time } }
    }

    /// What the loop has done so far. May be called from any thread at any time.
    ///
    /// The numbers are read one after the other while the loop goes on counting.
    public var statistics: Statistics {
        let meter = inbox.meter
        let measured = meter.measurements
        let wakeUps = Statistics.WakeUps(
            byTime: meter.wakeUpsByTime.value, byDescriptor: meter.wakeUpsByDescriptor.value,
            byThread: meter.wakeUpsByThread.value)
        return Statistics(
            passes: meter.passes.value, wakeUps: wakeUps,
            callbacks: .init(
                timers: meter.timers.value, events: meter.events.value, sources: meter.sources.value,
                observers: meter.observers.value, blocks: meter.blocks.value, jobs: meter.jobs.value),
            timerLateness: .nanoseconds(measured.lateness),
            greatestTimerLateness: .nanoseconds(measured.greatestLateness),
            pending: pending, processorTime: .nanoseconds(meter.processorClock.nanoseconds),
            ledger: measured.accounts.map(Statistics.LedgerEntry.init).sorted(
                by: Statistics.LedgerEntry.precedes))
    }

    /// Whether the loop sleeps, and no thread has woken it.
    package var isAsleep: Bool { inbox.isWaiting && !inbox.isWokenByThread }

    /// Whether tasks may have jobs for the loop.
    package var hasExecutors: Bool { executors.withLock { !$0.isEmpty } }

    private var pending: Statistics.Pending {
        let inbox = inbox.pendingCounts
        let jobs = executors.withLock { $0.reduce(0) { $0 + $1.queuedCount } }
        return Statistics.Pending(
            blocks: inbox.blocks, changes: inbox.commands, signals: inbox.signals, jobs: jobs)
    }
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
