import Synchronization
import SystemPackage

// Each item knows the modes it is in; here it is filed in, and taken out of, the groups accordingly.

extension RunLoop.Core {
    // MARK: Observers

    func update(_ observer: RunLoop.Observer, _ change: (inout Membership) -> Void) {
        change(&observer.membership)
        observer.places.follow(observer.membership.groups(common: commonModes)) { place in
            let state = state(of: place.group)
            state.observers.remove(observer, at: place.slot)
            if observer.isBlock { state.blockCount -= 1 }
        } enter: { mode in
            let state = state(of: mode)
            if observer.isBlock { state.blockCount += 1 }
            return state.observers.insert(observer, sequence: nextSequence())
        }
        observer.loop = observer.membership.isEmpty ? nil : loop
    }

    func discard(_ observer: RunLoop.Observer) {
        update(observer) { $0 = Membership() }
    }

    // MARK: Event sources

    /// Brings the filing and the kernel's registrations of a source up to date with its modes.
    ///
    /// At least one registration is made at once, so that a descriptor that the kernel refuses is refused
    /// here. Those of modes that have never run are made when they first do.
    func file(_ source: EventSource) throws(Errno) {
        source.outliveCallback()
        let modes = source.membership.modes(common: commonModes)
        source.endWatches(except: modes)
        let refusal = watch(source, in: modes)
        source.places.follow(source.membership.groups(common: commonModes)) { place in
            state(of: place.group).eventSources.remove(place.slot)
        } enter: { mode in
            state(of: mode).eventSources.insert(source)
        }
        if let refusal { throw refusal }
        if !source.isRegistered, !source.watchedInterest.isEmpty,
            let first = modes.contains(.default) ? .default : modes.members.first
        {
            let state = state(of: first)
            _ = try poller(for: state)
            try source.watch(in: state)
        }
    }

    /// As ``file(_:)`` after a change that only takes registrations away, or makes one that is made again
    /// later if it fails.
    func refile(_ source: EventSource) {
        _ = try? file(source)
        if source.membership.isEmpty { source.leave() }
    }

    /// The mode's poller, which gets all the mode's descriptors when it is made.
    func poller(for state: ModeState) throws(Errno) -> Poller {
        if let poller = state.poller { return poller }
        let waker = if let waker { waker } else { try Waker() }
        let poller = try Poller(number: state.mode.index, waker: waker)
        // The first poller comes with what wakes it, or neither is made.
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
        state.lacksWatches = false
        for source in state.eventSources.members { _ = watch(source, in: state) }
        for source in state.shared.eventSources.members { _ = watch(source, in: state) }
    }

    /// Has every mode's next pass try again what the kernel has refused.
    func noteLackingWatches() {
        for state in knownStates where state.poller != nil { state.lacksWatches = true }
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

    /// Registers `source`; one that is refused does not keep the mode's others from being served, and is
    /// tried again by the mode's next pass.
    private func watch(_ source: EventSource, in state: ModeState) -> Errno? {
        do throws(Errno) {
            try source.watch(in: state)
            return nil
        } catch {
            state.lacksWatches = true
            return error
        }
    }
}
