import SystemPackage

// Each item knows the modes that it is in; here its entries in the modes follow them.

extension RunLoop.Core {
    // MARK: Observers

    func update(_ observer: RunLoop.Observer, _ change: (inout Membership) -> Void) {
        change(&observer.membership)
        if observer.isBlock { count(-1, in: observer.entries.modes) }
        observer.entries.update(observer.membership.entryModes(common: commonModes)) {
            entry in
            state(of: entry.mode).observers.remove(at: entry.slot)
        } insert: { mode in
            state(of: mode).observers.insert(observer, sequence: nextSequence())
        }
        if observer.isBlock { count(1, in: observer.entries.modes) }
        observer.loop = observer.membership.isEmpty ? nil : loop
    }

    // MARK: Timers

    @inline(__always)
    func update(_ timer: Timer) { timer.state.withLock { update(timer, &$0) } }

    /// Makes the entries of a timer follow its modes and its date.
    func update(_ timer: Timer, _ state: inout Timer.State) {
        guard state.isIn(identity) else { return }
        inbox.wakeIfHosted()
        guard let mode = state.onlyMode, !state.hasOtherEntries else {
            return updateSlowly(timer, &state)
        }
        guard let entry = state.onlyEntry else {
            return state.setOnlyEntry(insert(timer, state, in: mode))
        }
        guard entry.mode == mode else { return updateSlowly(timer, &state) }
        move(timer, state, at: entry)
    }

    @inline(never)
    private func updateSlowly(_ timer: Timer, _ state: inout Timer.State) {
        let wanted = state.membership.entryModes(common: commonModes)
        var entries = state.entries
        for entry in entries where wanted.contains(entry.mode) {
            move(timer, state, at: entry)
        }
        entries.update(wanted, remove: remove) { insert(timer, state, in: $0).slot }
        state.entries = entries
    }

    @inline(__always)
    private func insert(_ timer: Timer, _ state: borrowing Timer.State, in mode: RunLoop.Mode)
        -> ModeEntry
    {
        let slot = self.state(of: mode).timers.insert(
            timer, date: state.due, tolerance: state.window(of: timer.period), isSuspended: state.isFiring,
            sequence: nextSequence())
        return ModeEntry(mode: mode, slot: slot)
    }

    private func move(_ timer: Timer, _ state: borrowing Timer.State, at entry: ModeEntry) {
        self.state(of: entry.mode).timers.move(
            entry.slot, date: state.due, tolerance: state.window(of: timer.period),
            isSuspended: state.isFiring, sequence: nextSequence())
    }

    /// Removes the timer at `entry`, which may destroy it.
    func remove(_ entry: ModeEntry) {
        let timer = state(of: entry.mode).timers.remove(entry.slot)
        withExtendedLifetime(timer) {}
    }

    /// Removes a timer from the loop, which ends. The timer stays valid, and may join another loop, unless its closure
    /// belongs to this thread.
    func release(_ timer: Timer) {
        let handler = timer.state.withLock { state -> Timer.DetachedHandler in
            guard state.isIn(identity) else { return Timer.DetachedHandler() }
            if state.isConfined { return state.invalidate() }
            state.leave()
            return Timer.DetachedHandler()
        }
        handler.release()
    }

    // MARK: Event sources

    /// Makes the entries of a source, and its registrations with the kernel, follow its modes.
    ///
    /// At least one registration with the kernel is made at once, so that a descriptor that the kernel refuses is refused
    /// here. Modes that have never run make theirs when they first do.
    func update(_ source: EventSource) throws(Errno) {
        source.outliveCallback()
        guard source.mayRecord else { return enter(source) }
        let modes = source.membership.modes(common: commonModes)
        source.endWatches(except: modes)
        let refusal = watch(source, in: modes)
        enter(source)
        if let refusal { throw refusal }
        if !source.hasPoller, !source.watchedInterest.isEmpty,
            let first = modes.contains(.default) ? .default : modes.members.first
        {
            let state = state(of: first)
            _ = try poller(for: state)
            try source.watch(in: state)
        }
    }

    private func enter(_ source: EventSource) {
        source.entries.update(source.membership.entryModes(common: commonModes)) {
            entry in
            state(of: entry.mode).eventSources.remove(entry.slot)
        } insert: { mode in
            state(of: mode).eventSources.insert(source)
        }
    }

    /// As ``update(_:)``, after a change that only removes registrations, or makes one that is made again later if it
    /// fails.
    func updateLeniently(_ source: EventSource) {
        _ = try? update(source)
        if source.membership.isEmpty { source.leave() }
    }

    /// Removes a source, which retains itself, from all its modes.
    func remove(_ source: EventSource) {
        source.entries.removeAll { state(of: $0.mode).eventSources.remove($0.slot) }
    }

    /// The mode's poller, which gets all the mode's descriptors when it is made.
    func poller(for state: ModeState) throws(Errno) -> Poller {
        if let poller = state.poller { return poller }
        let waker = if let waker { waker } else { try Waker() }
        let poller = try Poller(number: state.mode.index, waker: waker)
        // The first poller and the waker are made together, or neither is.
        self.waker = waker
        state.poller = poller
        state.isStarted = true
        watchAll(in: state)
        return poller
    }

    /// Begins to record what is ready in a mode that runs; true if it has a poller, or one can be made.
    @inline(never)
    func start(_ state: ModeState) -> Bool {
        if (try? poller(for: state)) != nil { return true }
        if !state.isStarted {
            state.isStarted = true
            watchAll(in: state)
        }
        return false
    }

    /// Registers what `state`'s poller does not watch yet.
    func watchAll(in state: ModeState) {
        state.needsRetry = false
        for source in state.eventSources.members { _ = watch(source, in: state) }
        for source in state.shared.eventSources.members { _ = watch(source, in: state) }
    }

    /// Makes every mode's next pass retry the registrations that the kernel has refused.
    func retryRegistrations() {
        for state in knownStates where state.poller != nil { state.needsRetry = true }
    }

    /// Registers `source` in those of its modes that have run.
    func watch(_ source: EventSource) {
        _ = watch(source, in: source.membership.modes(common: commonModes))
    }

    private func watch(_ source: EventSource, in modes: ModeSet) -> Errno? {
        var refusal: Errno?
        for mode in modes.members {
            guard let state = knownState(of: mode), state.isStarted else { continue }
            refusal = watch(source, in: state) ?? refusal
        }
        return refusal
    }

    /// Registers `source`. A refusal does not keep the mode's other sources from being served; the mode's next pass tries
    /// again.
    private func watch(_ source: EventSource, in state: ModeState) -> Errno? {
        do throws(Errno) {
            try source.watch(in: state)
            return nil
        } catch {
            state.needsRetry = true
            return error
        }
    }
}
