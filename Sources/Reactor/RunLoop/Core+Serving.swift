// The phases of a pass.

extension RunLoop.Core {
    // MARK: Observers

    @inline(__always)
    func notify(_ activity: RunLoop.Activities, _ mode: RunLoop.RunningMode) {
        if mode.observedActivities.contains(activity) { callObservers(of: activity, mode) }
    }

    /// Calls the observers of one activity. An observer that is added meanwhile waits for the next time.
    @inline(never)
    private func callObservers(of activity: RunLoop.Activities, _ mode: RunLoop.RunningMode) {
        var observers = mode.own.observers.inOrder()
        if !mode.common.observers.isEmpty {
            observers += mode.common.observers.inOrder()
            observers.sort { $0.precedes($1) }
        }
        for entry in observers where entry.observer.activities.contains(activity) {
            entry.observer.call(activity, meter)
        }
    }

    // MARK: Blocks

    /// Runs the jobs, and the blocks that have been posted so far; true if one of them counts as a source.
    @inline(__always)
    func runBlocks(_ mode: RunLoop.RunningMode) -> Bool {
        drainInbox()
        return mode.blockCount > 0 && runPendingBlocks(mode)
    }

    @inline(never)
    private func runPendingBlocks(_ mode: RunLoop.RunningMode) -> Bool {
        var handled = !waitingExecutors.isEmpty && runJobs(mode)
        guard mode.blockCount > 0 else { return handled }
        var batch = blocks.takeBatch(for: ModeSet([mode.own.mode, mode.common.mode]))
        count(batch, by: -1)
        handled = run(&batch) || handled
        blocks.keepStorage(of: &batch)
        return handled
    }

    private func run(_ batch: inout [PostedBlock]) -> Bool {
        var handled = false
        for index in batch.indices {
            guard let block = batch[index].body.take() else { continue }
            meter.blocks.add()
            meter.call(.block, { meter.push("posted block") }, { block() })
            handled = handled || batch[index].isSource
        }
        return handled
    }

    // MARK: Signalled sources

    /// Performs the sources that were signalled before now, or only the first of them; true if any was performed.
    @inline(__always)
    func performSignalledSources(_ mode: RunLoop.RunningMode, onlyFirst: Bool) -> Bool {
        drainInbox()
        return mode.hasSignals && performSources(mode, onlyFirst: onlyFirst)
    }

    @inline(never)
    private func performSources(_ mode: RunLoop.RunningMode, onlyFirst: Bool) -> Bool {
        let limit = RunLoop.Source.Signal.next()
        var performed = false
        while let (source, signal) = nextSignalled(mode, before: limit) {
            guard source.perform(signal, in: self) else { continue }
            performed = true
            if onlyFirst { break }
        }
        return performed
    }

    private func nextSignalled(
        _ mode: RunLoop.RunningMode, before limit: RunLoop.Source.Signal
    ) -> (RunLoop.Source, RunLoop.Source.Signal)? {
        let own = mode.own.signals.first(before: limit)
        let common = mode.common.signals.first(before: limit)
        guard let first = own, let other = common else {
            return (own ?? common).map { ($0.source, $0.signal) }
        }
        let next = other.precedes(first) ? other : first
        return (next.source, next.signal)
    }

    // MARK: Timers

    /// Fires the timers that are due, in the order of their dates. A timer that gets its date meanwhile waits for the next
    /// pass.
    @inline(__always)
    func fireTimers(_ mode: RunLoop.RunningMode) {
        if mode.hasTimers { fireDueTimers(mode) }
    }

    @inline(never)
    private func fireDueTimers(_ mode: RunLoop.RunningMode) {
        let now = Deadline.now.uptimeNanoseconds
        let limit = nextSequence()
        while let (timer, entry) = suspendNext(mode, at: now, addedBefore: limit) {
            fire(timer, from: entry, at: now)
        }
    }

    /// The next timer to fire. It is suspended while its callback runs: it neither fires in a nested activation nor wakes
    /// one.
    @inline(__always)
    private func suspendNext(
        _ mode: RunLoop.RunningMode, at now: Int64, addedBefore limit: UInt64
    ) -> (Timer, ModeEntry)? {
        let (own, common) = (mode.own, mode.common)
        guard !common.timers.isEmpty, let other = common.timers.firstDue(at: now, addedBefore: limit) else {
            return suspendFirstDue(of: own, at: now, addedBefore: limit)
        }
        let first = own.timers.firstDue(at: now, addedBefore: limit)
        let state = first?.precedes(other) == true ? own : common
        return suspendFirstDue(of: state, at: now, addedBefore: limit)
    }

    @inline(__always)
    private func suspendFirstDue(
        of state: ModeState, at now: Int64, addedBefore limit: UInt64
    ) -> (Timer, ModeEntry)? {
        guard let (timer, slot) = state.timers.suspendFirstDue(at: now, addedBefore: limit) else {
            return nil
        }
        state.timers.prefetchNext()
        return (timer, ModeEntry(mode: state.mode, slot: slot))
    }

    private func fire(_ timer: Timer, from entry: ModeEntry, at now: Int64) {
        guard let handler = begin(timer, from: entry, at: now) else { return }
        meter.timers.add()
        meter.call(.timer, { push(timer) }, { handler(timer) })
        finish(timer)
    }

    @inline(never)
    private func push(_ timer: Timer) {
        meter.push(timer.title, due: timer.state.withLock { $0.due }, mayHaveWoken: true)
    }

    /// Begins a firing; nil if the timer has been moved, removed or invalidated, and the queues have yet to follow.
    private func begin(_ timer: Timer, from entry: ModeEntry, at now: Int64) -> Timer.Handler? {
        timer.state.withLock { state in
            guard state.isIn(identity), state.has(entry), state.due <= now,
                !state.isFiring
            else {
                update(timer, &state)
                return nil
            }
            state.isMoved = false
            if state.hasOtherEntries { suspend(state.entries) }
            return state.beginFiring()
        }
    }

    private func suspend(_ entries: ModeEntries) {
        for entry in entries { state(of: entry.mode).timers.suspend(entry.slot) }
    }

    private func finish(_ timer: Timer) {
        guard timer.period > 0 else { return timer.finishForGood() }
        let now = Deadline.now.uptimeNanoseconds
        let otherLoop = timer.state.withLock { state -> RunLoop? in
            state.isFiring = false
            state.advance(by: timer.period, now: now)
            resume(timer, &state)
            // The callback may have moved the timer to another loop, which has suspended it until now.
            return state.isIn(identity) ? nil : state.loop
        }
        otherLoop?.update(timer)
    }

    /// As ``update(_:_:)``, but quicker for a timer that has not moved.
    private func resume(_ timer: Timer, _ state: inout Timer.State) {
        guard state.isIn(identity), let entry = state.onlyEntry,
            entry.mode == state.onlyMode
        else {
            return update(timer, &state)
        }
        self.state(of: entry.mode).timers.resume(
            entry.slot, date: state.due, sequence: nextSequence())
    }

    // MARK: Event sources

    /// Serves what is ready, or only the first of it; true if any handler was called.
    @inline(always)
    func serveReady(_ mode: RunLoop.RunningMode, onlyFirst: Bool) -> Bool {
        let ready = mode.ready
        guard !ready.isEmpty else { return false }
        let round = ready.beginRound()
        var handled = false
        while let watch = ready.takeFirst(before: round) {
            if ready.isLate(watch) { watch.confirm() }
            guard meter.call(watch.callbackKind, { watch.push(to: meter) }, { watch.serve() }) else {
                continue
            }
            meter.others.add()
            handled = true
            if onlyFirst { break }
        }
        ready.hasLeftovers = ready.holds(before: round)
        return handled
    }
}
