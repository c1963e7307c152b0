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
    ///   - deadline: When to return at the latest; a callback that is in progress then completes first. A deadline that has
    ///     passed makes a single pass that does not wait.
    ///   - returnAfterSourceHandled: Whether to return as soon as a source has been handled: a signalled
    ///     source, a descriptor, a stream, a main-queue drain, a mailbox, an executor's job, or a block posted with
    ///     `performAndWait`. Timers, observers and other blocks do not count.
    /// - Returns: Why it ended; ``RunResult/finished`` at once if the mode is empty. The main loop's common modes never
    ///   are, as they serve the main queue: there only ``stop()`` or the deadline end it.
    /// - Precondition: Called on the loop's own thread.
    @discardableResult
    @available(*, noasync, message: "await the work itself: the loop's executor runs it meanwhile")
    public func run(
        in mode: Mode, until deadline: Deadline = .distantFuture, returnAfterSourceHandled: Bool = false
    ) -> RunResult {
        requireCurrent("RunLoop.run(in:until:) must be called")
        let deadline = deadline.uptimeNanoseconds
        return core.activate(mode, until: deadline, returnAfterSource: returnAfterSourceHandled) ?? .finished
    }

    // MARK: Cocoa's spellings

    // With ReactorFoundation, the variants that take a `Date` are preferred: hence the attribute. It decides for
    // `.distantFuture`, which both types have, and for the type of a variable without annotation.

    /// Runs in the default mode until it has nothing left to run for: on the main thread, forever.
    ///
    /// ``stop()`` does not end it, as in Cocoa: it ends one activation, and this begins the next. A loop that
    /// is to be stopped runs with ``run(in:until:returnAfterSourceHandled:)``.
    /// - Precondition: Called on the loop's own thread.
    @_disfavoredOverload
    @available(*, noasync, message: "await the work itself: the loop's executor runs it meanwhile")
    public func run() {
        while run(mode: .default, before: .distantFuture) {}
    }

    /// Runs in the default mode until `deadline`, making at least one pass; returns at once if the mode is
    /// empty.
    ///
    /// - Precondition: Called on the loop's own thread.
    @_disfavoredOverload
    @available(*, noasync, message: "await the work itself: the loop's executor runs it meanwhile")
    public func run(until deadline: Deadline) {
        while run(mode: .default, before: deadline), Deadline.now < deadline {}
    }

    /// Runs once in `mode`, until a source has been handled or `deadline` has passed.
    ///
    /// Timers fire meanwhile, any number of them, and do not make it return. So the classic `while !done &&
    /// loop.run(mode: .default, before: .distantFuture) {}` looks at `done` after each source.
    /// - Returns: Whether it ran: false for an empty mode, for ``Mode/common``, and on a thread that is not
    ///   the loop's.
    @_disfavoredOverload
    @discardableResult
    @available(*, noasync, message: "await the work itself: the loop's executor runs it meanwhile")
    public func run(mode: Mode, before deadline: Deadline) -> Bool {
        requireNotOfParent()
        guard isCurrent, mode != .common else { return false }
        return core.activate(mode, until: deadline.uptimeNanoseconds, returnAfterSource: true) != nil
    }

    /// Polls `mode` once, and says when its next timer is due.
    ///
    /// - Returns: The date of the mode's earliest timer, ``Deadline/distantFuture`` if it has other things
    ///   only, and nil if it is empty or the thread is not the loop's.
    @_disfavoredOverload
    package func limitDate(forMode mode: Mode) -> Deadline? {
        guard run(mode: mode, before: .distantPast) else { return nil }
        let running = core.running(mode)
        return core.hasReasonToContinue(running) ? core.firstDate(running) : nil
    }
}

// MARK: - One activation

extension RunLoop.Core {
    typealias RunResult = RunLoop.RunResult

    /// Runs until there is a reason to return; nil if there was nothing to run for.
    func activate(_ mode: RunLoop.Mode, until deadline: Int64, returnAfterSource: Bool) -> RunResult? {
        if loop.isMain { serveMainQueue() }
        drainInbox()
        let running = running(mode)
        guard mode != .common, !inbox.isClosed, hasReasonToStart(running) else { return nil }
        hosting?.suspend()
        defer { hosting?.resume() }
        let hasPausedCall = LoopDiagnostics.isMeasuring && meter.pauseCall()
        defer { if hasPausedCall { meter.resumeCall() } }
        let outer = inbox.beginActivation(in: mode)
        defer { inbox.endActivation(outer) }

        noteRun(in: running.own)
        var hasItems = hasReasonToContinue(running)
        notify(.entry, running)
        var result: RunResult? = inbox.isStopRequested ? .stopped : nil
        while result == nil {
            result = pass(running, hasItems, until: deadline, returnAfterSource: returnAfterSource)
            hasItems = true  // a pass that leaves none ends the activation
        }
        notify(.exit, running)
        return result
    }

    /// One pass: everything that a loop does, in the order in which it does it.
    ///
    /// This function, and what it calls in every pass, is inlined: after a system call the processor mispredicts the return
    /// of every frame that was active during the call, which costs as much as some fifty instructions each.
    @inline(always)
    private func pass(
        _ mode: RunLoop.RunningMode, _ hasItems: Bool, until deadline: Int64, returnAfterSource: Bool
    ) -> RunResult? {
        var handled = beginPass(mode, onlyFirst: returnAfterSource)
        let wait = beginWait(mode, until: handled ? .min : deadline, unlessEmptied: hasItems)
        endWait(wait, mode)
        fireTimers(mode)
        handled = serveReady(mode, onlyFirst: returnAfterSource) || handled
        handled = runBlocks(mode) || handled

        if handled, returnAfterSource { return .handledSource }
        if deadline != .max, deadline <= Deadline.now.uptimeNanoseconds { return .timedOut }
        if inbox.isStopRequested { return .stopped }
        drainInbox()
        return hasReasonToContinue(mode) ? nil : .finished
    }

    /// What comes before the wait; true if a source was handled.
    @inline(always)
    func beginPass(_ mode: RunLoop.RunningMode, onlyFirst: Bool) -> Bool {
        // A callback of the last pass may have forked, and returned in the child, too.
        if inbox.belongsToParent { ProcessIdentity.refuseParentsLoop() }
        inbox.beginPass()
        meter.passes.add()
        notify(.beforeTimers, mode)
        notify(.beforeSources, mode)
        var handled = runBlocks(mode)
        if performSignalledSources(mode, onlyFirst: onlyFirst) {
            _ = runBlocks(mode)
            handled = true
        }
        if !onlyFirst, !mode.ready.isEmpty { serveMarked(mode) }
        return handled
    }

    /// Serves the event sources that the library has marked ready, before the kernel is asked: what they begin to watch then,
    /// it reports at once.
    ///
    /// If an outer pass has left something that the kernel has reported, these wait, too: that is served after the timers.
    @inline(never)
    private func serveMarked(_ mode: RunLoop.RunningMode) {
        guard mode.ready.areAllMarked else { return }
        if LoopDiagnostics.isAnyOn { permuteReady(mode) }
        _ = serveReady(mode, onlyFirst: false)
    }

    /// How a pass asks the kernel what is ready.
    enum Wait {
        /// It does not: an earlier activation has left something to serve, or the loop has no poller.
        case skipped
        /// Without waiting, and without calling observers.
        case polling
        /// Until this time, or until another thread wakes the loop. `.min` means without waiting.
        case until(Int64)
    }

    /// Decides how to ask the kernel, and lets other threads wake the loop.
    ///
    /// The loop sleeps only if nothing is pending. A signal without a wake-up does not count as pending. If the last item has
    /// been removed during this activation, the loop does not sleep; if there were only blocks from the start, it does, as in
    /// Core Foundation. Observers may change all this, so it is decided after they have been called. What an earlier activation
    /// has left ready is served without a poll, which is the expensive part of a pass. Only a descriptor source's readiness is
    /// confirmed then, because the caller of that activation may have read the descriptor since.
    @inline(always)
    func beginWait(
        _ mode: RunLoop.RunningMode, until limit: Int64, unlessEmptied hadItems: Bool
    ) -> Wait {
        let (own, ready) = (mode.own, mode.ready)
        guard own.poller != nil || start(own) else { return sleepWithoutPoller(own, until: limit) }
        if ready.hasLeftovers, ready.confirmFirst() { return .skipped }
        let hasUnserved = ready.dropServed()
        let limit = needsRetry(own) ? retry(own, until: limit) : limit
        if hasUnserved || hasPassed(limit) { return .polling }
        notify(.beforeWaiting, mode)
        inbox.setWaiting(true)
        let wakeTime = hadItems && !hasReasonToContinue(mode) ? .min : wakeTime(mode, until: limit)
        let isIdle = wakeTime != .min && !ready.dropServed()
        let maySleep = isIdle && inbox.beginSleep(on: own.prepareToWait())
        return .until(maySleep ? wakeTime : .min)
    }

    /// Asks the kernel what is ready, and sleeps until something is, a timer is due, or another thread wakes the loop.
    @inline(always)
    func endWait(_ wait: Wait, _ mode: RunLoop.RunningMode) {
        switch wait {
        case .skipped: break
        case .polling:
            mode.own.poll(until: .min)
            if LoopDiagnostics.isAnyOn { permuteReady(mode) }
        case .until(let time):
            mode.own.poll(until: time)
            if time != .min { countWakeUp(mode) } else if LoopDiagnostics.isAnyOn { permuteReady(mode) }
            inbox.endSleep()
            inbox.setWaiting(false)
            notify(.afterWaiting, mode)
        }
    }

    /// Counts the end of a sleep by what has ended it.
    @inline(__always)
    private func countWakeUp(_ mode: RunLoop.RunningMode) {
        let byThread = mode.ready.isEmpty && inbox.isWokenByThread
        if byThread {
            meter.wakeUpsByThread.add()
        } else if mode.ready.isEmpty {
            meter.wakeUpsByTime.add()
        } else {
            meter.wakeUpsByDescriptor.add()
        }
        if LoopDiagnostics.isAnyOn { noteWakeUp(mode, byThread: byThread) }
    }

    @inline(never)
    private func noteWakeUp(_ mode: RunLoop.RunningMode, byThread: Bool) {
        if LoopDiagnostics.isMeasuring { meter.noteWakeUp(byThread: byThread) }
        guard currentTimeSource != nil else { return }
        permuteReady(mode)
        mode.own.poller?.forgetTimer()
    }

    /// Puts what is ready in the order that a test's seed decides on.
    @inline(never)
    private func permuteReady(_ mode: RunLoop.RunningMode) {
        if let source = currentTimeSource { mode.ready.permute(source.order) }
    }

    /// Until when the kernel may wait: the limit or the first timer, whichever is earlier; `.min` if that has passed.
    @inline(__always)
    private func wakeTime(_ mode: RunLoop.RunningMode, until limit: Int64) -> Int64 {
        let first = mode.hasTimers ? min(limit, wakeDate(mode)) : limit
        return hasPassed(first) ? .min : first
    }

    private func hasPassed(_ time: Int64) -> Bool { time != .max && time <= Deadline.now.uptimeNanoseconds }

    /// When to wake for timers; those of the mode and the common ones share wake-ups too.
    @inline(never)
    private func wakeDate(_ mode: RunLoop.RunningMode) -> Int64 {
        mode.own.timers.wakeDate(leastTolerance: timerSlack, with: mode.common.timers) ?? .max
    }

    /// Waits without a poller, which cannot be made because the process has no descriptors left: timers, blocks and events
    /// without descriptors are still served, up to ``sleepMicroseconds`` late.
    @inline(never)
    private func sleepWithoutPoller(_ mode: ModeState, until limit: Int64) -> Wait {
        if lacksMainQueue { serveMainQueue() }
        guard !mode.ready.dropServed(), limit > Deadline.now.uptimeNanoseconds else { return .skipped }
        RunLoop.noteWait("in a run loop without descriptors") { _ = usleep(Self.sleepMicroseconds) }
        return .skipped
    }

    /// Short enough for timers, long enough to use little of the processor.
    private static var sleepMicroseconds: UInt32 { 5_000 }

    /// Whether a pass in `mode` retries registrations that failed before.
    private func needsRetry(_ mode: ModeState) -> Bool { mode.needsRetry || lacksMainQueue }

    /// Retries the registrations that the kernel has refused, and returns until when to wait: `limit`, or the next retry,
    /// because nothing wakes a loop when memory or descriptors become free.
    @inline(never)
    private func retry(_ mode: ModeState, until limit: Int64) -> Int64 {
        if lacksMainQueue { serveMainQueue() }
        watchAll(in: mode)
        guard needsRetry(mode) else { return limit }
        return min(limit, Deadline.now.uptimeNanoseconds + Self.retryNanoseconds)
    }

    /// Twenty times a second costs next to nothing, and a delay of 50 ms is short for a peer.
    private static var retryNanoseconds: Int64 { 50_000_000 }

    // MARK: Whether there is anything to run for

    private func hasReasonToStart(_ mode: RunLoop.RunningMode) -> Bool {
        hasReasonToContinue(mode) || mode.blockCount > 0
    }

    /// The date of the first timer; ``Deadline/distantFuture`` without one.
    func firstDate(_ mode: RunLoop.RunningMode) -> Deadline {
        let (own, common) = (mode.own.timers.earliestDate, mode.common.timers.earliestDate)
        return Deadline(uptimeNanoseconds: min(own ?? .max, common ?? .max))
    }

    /// Observers and blocks do not count. The main queue does, unless it is being drained further up the
    /// stack.
    func hasReasonToContinue(_ mode: RunLoop.RunningMode) -> Bool {
        mode.own.hasItems || hasReasonToContinue(for: mode.common)
    }

    private func hasReasonToContinue(for common: ModeState) -> Bool {
        guard common.hasItems else { return lacksMainQueue && common.mode == .common }
        guard let mainQueue, mainQueue.isInCallback else { return true }
        return !common.timers.isEmpty || !common.sources.isEmpty || common.eventSources.count > 1
    }
}
