import Glibc

extension RunLoop {
    /// Why an activation ended. The values are Core Foundation's.
    public enum RunResult: Int, Sendable {
        /// The mode had nothing to run for, or has nothing left.
        case finished = 1
        /// ``RunLoop/stop()`` was called.
        case stopped = 2
        /// The deadline has passed.
        case timedOut = 3
        /// A source was handled, and the caller asked to return then.
        case handledSource = 4
    }

    /// Runs this loop once, in one mode: Core Foundation's `CFRunLoopRunInMode`.
    ///
    /// - Parameters:
    ///   - mode: The mode to run in; ``Mode/common`` cannot be run.
    ///   - deadline: When to return at the latest, counted from the end of the callout under way then. One
    ///     that has passed makes a single pass that does not wait.
    ///   - returnAfterSourceHandled: Whether to return as soon as a source has been handled: a signalled
    ///     source, a descriptor, a stream, a main-queue drain, or a block posted with `performAndWait`.
    ///     Timers, observers and other blocks never count.
    /// - Returns: Why it ended; ``RunResult/finished`` at once if the mode is empty.
    /// - Precondition: Called on the loop's own thread.
    @discardableResult
    public func run(
        in mode: Mode, until deadline: Deadline = .distantFuture, returnAfterSourceHandled: Bool = false
    ) -> RunResult {
        assertNotOfParent()
        precondition(isCurrent, "a run loop is run by its own thread")
        let deadline = deadline.uptimeNanoseconds
        return core.activate(mode, until: deadline, returnAfterSource: returnAfterSourceHandled) ?? .finished
    }
}

// MARK: - One activation

extension RunLoop.Core {
    typealias RunResult = RunLoop.RunResult

    /// Runs until there is a reason to return; nil if there was nothing to run for.
    func activate(_ mode: RunLoop.Mode, until deadline: Int64, returnAfterSource: Bool) -> RunResult? {
        if isMain { serveMainQueue() }
        collect()
        let groups = groups(of: mode)
        guard mode != .common, !inbox.isClosed, canStart(groups) else { return nil }
        let outer = inbox.beginActivation(in: mode)
        defer { inbox.endActivation(outer) }

        var hasItems = canGoOn(groups)
        notify(.entry, groups)
        var result: RunResult? = inbox.isStopRequested ? .stopped : nil
        while result == nil {
            result = pass(groups, hasItems, until: deadline, returnAfterSource: returnAfterSource)
            // Else it would not go on.
            hasItems = true
        }
        notify(.exit, groups)
        return result
    }

    /// One pass: everything that a loop does, in the order in which it does it.
    ///
    /// What it calls in every pass is inlined, this too: a system call leaves the processor without a memory of
    /// where to return to, and each frame that outlasts one costs some fifty instructions.
    @inline(always)
    private func pass(
        _ groups: RunLoop.Groups, _ hasItems: Bool, until deadline: Int64, returnAfterSource: Bool
    ) -> RunResult? {
        // A callout of the pass before may have forked, and returned in the child too.
        if inbox.isOfParent { Fork.refuse() }
        inbox.beginPass()
        notify(.beforeTimers, groups)
        notify(.beforeSources, groups)
        var handled = runBlocks(groups)
        if performSignalledSources(groups, onlyFirst: returnAfterSource) {
            handled = true
            _ = runBlocks(groups)
        }
        wait(groups, until: handled ? .min : deadline, unlessEmptied: hasItems)
        fireTimers(groups)
        handled = serveReady(groups, onlyFirst: returnAfterSource) || handled
        handled = runBlocks(groups) || handled

        if handled, returnAfterSource { return .handledSource }
        if deadline != .max, deadline < Deadline.now.uptimeNanoseconds { return .timedOut }
        if inbox.isStopRequested { return .stopped }
        collect()
        return canGoOn(groups) ? nil : .finished
    }

    /// Asks the kernel what is ready, and sleeps until something is, a timer is due, or somebody wakes the
    /// loop.
    ///
    /// It does not sleep while something waits to be served, a signal without a wake-up aside, nor when the last item has gone since the activation
    /// began; for the sake of blocks alone it does, as in Core Foundation. All this is asked after the observers,
    /// who may change it. What an earlier activation has left over is served without polling: that is the expensive
    /// part of a pass. Only handlers of descriptors have theirs confirmed, as the caller of that activation may have
    /// read them since.
    @inline(always)
    private func wait(_ groups: RunLoop.Groups, until limit: Int64, unlessEmptied hadItems: Bool) {
        let (own, ready) = (groups.own, groups.ready)
        guard own.poller != nil || start(own) else { return nap(own, until: limit) }
        if ready.hasLeftovers, ready.hasConfirmed() { return }
        let hasUnserved = ready.hasUnserved()
        let limit = isLacking(own) ? retry(own, until: limit) : limit
        if hasUnserved || isOver(limit) { return own.poll(until: .min) }
        notify(.beforeWaiting, groups)
        inbox.setWaiting(true)
        let wakeTime = hadItems && !canGoOn(groups) ? .min : wakeTime(groups, until: limit)
        let isIdle = wakeTime != .min && !ready.hasUnserved()
        let maySleep = isIdle && inbox.fallAsleep(on: own.prepareToWait())
        own.poll(until: maySleep ? wakeTime : .min)
        inbox.awake()
        inbox.setWaiting(false)
        notify(.afterWaiting, groups)
    }

    /// Until when the kernel may wait: the limit or the first timer, whichever comes first; `.min` when that is
    /// over.
    @inline(__always)
    private func wakeTime(_ groups: RunLoop.Groups, until limit: Int64) -> Int64 {
        let first = groups.haveTimers ? min(limit, wakeDate(groups)) : limit
        return isOver(first) ? .min : first
    }

    @inline(__always)
    private func isOver(_ time: Int64) -> Bool { time != .max && time <= Deadline.now.uptimeNanoseconds }

    /// When to wake for timers; those of the mode and the common ones share wake-ups too.
    @inline(never)
    private func wakeDate(_ groups: RunLoop.Groups) -> Int64 {
        groups.own.timers.wakeDate(leastTolerance: timerSlack, with: groups.common.timers) ?? .max
    }

    /// Waits without a poller, for which the process has no descriptors left: timers, blocks and what the library itself
    /// has raised go on, a little late.
    @inline(never)
    private func nap(_ mode: ModeState, until limit: Int64) {
        if lacksMainQueue { serveMainQueue() }
        guard !mode.ready.hasUnserved(), limit > Deadline.now.uptimeNanoseconds else { return }
        _ = usleep(Self.napMicroseconds)
    }

    private static var napMicroseconds: UInt32 { 5_000 }

    /// Whether a pass in `mode` tries again to watch what it could not watch before.
    @inline(__always)
    private func isLacking(_ mode: ModeState) -> Bool { mode.lacksWatches || lacksMainQueue }

    /// Tries again to watch what the kernel has refused, and returns when to do so once more, if not `limit`: nothing
    /// wakes a loop for memory or descriptors that have become free.
    @inline(never)
    private func retry(_ mode: ModeState, until limit: Int64) -> Int64 {
        if lacksMainQueue { serveMainQueue() }
        watchAll(in: mode)
        guard isLacking(mode) else { return limit }
        return min(limit, Deadline.now.uptimeNanoseconds + Self.retryNanoseconds)
    }

    /// Rare enough to cost nothing, and soon enough for whoever waits.
    private static var retryNanoseconds: Int64 { 50_000_000 }

    // MARK: Whether there is anything to run for

    private func canStart(_ groups: RunLoop.Groups) -> Bool {
        canGoOn(groups) || groups.blockCount > 0
    }

    /// Observers and blocks do not count. The main queue does, unless it is being drained further up the
    /// stack.
    @inline(__always)
    func canGoOn(_ groups: RunLoop.Groups) -> Bool {
        groups.own.hasItems || canGoOn(for: groups.common)
    }

    private func canGoOn(for common: ModeState) -> Bool {
        guard common.hasItems else { return lacksMainQueue && common.mode == .common }
        guard let mainQueue, mainQueue.isInCallout else { return true }
        return !common.timers.isEmpty || !common.sources.isEmpty || common.eventSources.count > 1
    }
}
