import Synchronization
import SystemPackage

// Each item knows the modes it is in; here it is filed in, and taken out of, the groups accordingly.

extension RunLoop.Core {
    // MARK: Observers

    func update(_ observer: RunLoop.Observer, _ change: (inout Membership) -> Void) {
        change(&observer.membership)
        let wanted = observer.membership.groups(common: commonModes)
        for place in observer.places where !wanted.contains(place.group) {
            let state = state(of: place.group)
            state.observers.remove(observer, at: place)
            if observer.isBlock { state.blockCount -= 1 }
        }
        observer.places.removeAll { !wanted.contains($0.group) }
        for mode in wanted.subtracting(ModeSet(observer.places.map(\.group))).members {
            let state = state(of: mode)
            observer.places.append(state.observers.insert(observer, sequence: nextSequence(), of: mode))
            if observer.isBlock { state.blockCount += 1 }
        }
        observer.loop = observer.membership.isEmpty ? nil : loop
    }

    func discard(_ observer: RunLoop.Observer) {
        update(observer) { $0 = Membership() }
    }

    // MARK: Descriptors

    /// Brings the filing and the kernel's registrations of a source up to date with its modes.
    ///
    /// At least one registration is made at once, so that a descriptor that the kernel refuses is refused
    /// here. Those of modes that have never run are made when they first do.
    func file(_ source: DescriptorSource) throws(Errno) {
        let modes = source.membership.modes(common: commonModes)
        source.cancelWatches(except: modes)
        let refusal = watch(source, in: modes)
        moveToGroups(source)
        if let refusal { throw refusal }
        if !source.isWatched, !source.interest.isEmpty,
            let first = modes.contains(.default) ? .default : modes.members.first
        {
            try source.watch(on: try poller(for: state(of: first)))
        }
    }

    /// As ``file(_:)`` after a change that only takes registrations away, or makes one that is made again
    /// later if it fails.
    func refile(_ source: DescriptorSource) {
        _ = try? file(source)
        if source.membership.isEmpty { source.leave() }
    }

    private func moveToGroups(_ source: DescriptorSource) {
        let wanted = source.membership.groups(common: commonModes)
        let groups = source.places.groups
        takeFromRosters(source, groups.subtracting(wanted))
        for mode in wanted.subtracting(groups).members {
            state(of: mode).descriptors.insert(source, of: mode)
        }
    }

    /// Takes `source` out of the rosters of `groups`.
    func takeFromRosters(_ source: DescriptorSource, _ groups: ModeSet) {
        for mode in groups.members {
            source.outliveCallout()
            state(of: mode).descriptors.remove(source, of: mode)
        }
    }

    /// The mode's poller, which gets all the mode's descriptors when it is made.
    func poller(for state: ModeState) throws(Errno) -> Poller {
        if let poller = state.poller { return poller }
        let poller = try makePoller(number: state.mode.index)
        state.poller = poller
        watchAll(in: state, on: poller)
        return poller
    }

    /// The first poller comes with what wakes it, or neither is made.
    private func makePoller(number: Int32) throws(Errno) -> Poller {
        if let waker { return try Poller(number: number, waker: waker) }
        let waker = try Waker()
        do throws(Errno) {
            let poller = try Poller(number: number, waker: waker)
            self.waker = waker
            return poller
        } catch {
            waker.free()
            throw error
        }
    }

    /// The mode's poller, if there is one or one can be made.
    @inline(__always)
    func poller(of state: ModeState) -> Poller? { state.poller ?? newPoller(for: state) }

    @inline(never)
    private func newPoller(for state: ModeState) -> Poller? { try? poller(for: state) }

    /// Registers what `poller` does not watch yet.
    func watchAll(in state: ModeState, on poller: Poller) {
        state.lacksWatches = false
        let groups = RunLoop.Groups(own: state)
        groups.own.descriptors.visit { _ = watch($0, in: state, on: poller) }
        groups.common.descriptors.visit { _ = watch($0, in: state, on: poller) }
    }

    /// Has every mode's next pass try again what the kernel has refused.
    func noteLackingWatches() {
        for state in knownStates where state.poller != nil { state.lacksWatches = true }
    }

    /// Registers `source` wherever its modes have pollers.
    func watch(_ source: DescriptorSource) {
        _ = watch(source, in: source.membership.modes(common: commonModes))
    }

    private func watch(_ source: DescriptorSource, in modes: ModeSet) -> Errno? {
        var refusal: Errno?
        for mode in modes.members {
            guard let state = knownState(of: mode), let poller = state.poller else { continue }
            refusal = watch(source, in: state, on: poller) ?? refusal
        }
        return refusal
    }

    /// Registers `source`; one that is refused does not keep the mode's others from being served, and is
    /// tried again by the mode's next pass.
    private func watch(_ source: DescriptorSource, in state: ModeState, on poller: Poller) -> Errno? {
        do throws(Errno) {
            try source.watch(on: poller)
            return nil
        } catch {
            state.lacksWatches = true
            return error
        }
    }
}
