import Synchronization

// Each timer knows the modes that it is in; here it is filed in their groups accordingly, and fired.

extension RunLoop.Core {
    // MARK: Filing

    @inline(__always)
    func file(_ timer: Timer) { timer.state.withLock { file(timer, &$0) } }

    /// Brings the filing of a timer up to date with its modes and its date.
    func file(_ timer: Timer, _ state: inout Timer.State) {
        if state.hasStrays { removeStrays(&state) }
        guard state.isIn(home) else { return }
        guard let group = state.soleGroup, !state.hasMorePlaces else { return fileInEach(timer, &state) }
        if let place = state.place {
            if place.group == group { return move(timer, state, at: place) }
            remove(place)
        }
        state.place = insert(timer, state, in: group)
    }

    @inline(never)
    private func removeStrays(_ state: inout Timer.State) {
        for place in state.takeStrays(of: home) { remove(place) }
    }

    @inline(never)
    private func fileInEach(_ timer: Timer, _ state: inout Timer.State) {
        let wanted = state.membership.groups(common: commonModes)
        var places = state.morePlaces
        if let first = state.place { places.append(first) }
        for place in places {
            if wanted.contains(place.group) { move(timer, state, at: place) } else { remove(place) }
        }
        places.removeAll { !wanted.contains($0.group) }
        for mode in wanted.members where !places.contains(where: { $0.group == mode }) {
            places.append(insert(timer, state, in: mode))
        }
        state.place = places.popLast()
        state.morePlaces = places
    }

    @inline(__always)
    private func insert(_ timer: Timer, _ state: borrowing Timer.State, in group: RunLoop.Mode) -> Place {
        let slot = self.state(of: group).timers.insert(
            timer, date: state.due, tolerance: state.window(of: timer.period), isSetAside: state.isFiring,
            sequence: nextSequence())
        return Place(group: group, slot: slot)
    }

    private func move(_ timer: Timer, _ state: borrowing Timer.State, at place: Place) {
        self.state(of: place.group).timers.move(
            place.slot, date: state.due, tolerance: state.window(of: timer.period),
            isSetAside: state.isFiring, sequence: nextSequence())
    }

    func remove(_ place: Place) {
        self.state(of: place.group).timers.remove(place.slot)
    }

    /// Drops a timer when the loop ends. It stays valid, and may join another loop, unless its closure
    /// belongs to a thread.
    func forget(_ timer: Timer) {
        let remains = timer.state.withLock { state -> Timer.Remains in
            for place in state.takeStrays(of: home) { remove(place) }
            guard state.isIn(home) else { return Timer.Remains() }
            if state.isConfined { return state.retire() }
            state.leave()
            return Timer.Remains()
        }
        remains.release()
    }

    // MARK: Firing

    /// Fires the timers that are due, in the order of their dates. Those that get their date meanwhile wait.
    @inline(__always)
    func fireTimers(_ groups: RunLoop.Groups) {
        if groups.haveTimers { fireDueTimers(groups) }
    }

    @inline(never)
    private func fireDueTimers(_ groups: RunLoop.Groups) {
        let now = Deadline.now.uptimeNanoseconds
        let limit = nextSequence()
        while let timer = setAsideNext(groups, at: now, filedBefore: limit) { fire(timer, at: now) }
    }

    /// The next timer to fire: while its callout is under way, it neither fires in a nested activation nor wakes
    /// one.
    private func setAsideNext(_ groups: RunLoop.Groups, at now: Int64, filedBefore limit: UInt64) -> Timer? {
        let (own, common) = (groups.own, groups.common)
        guard !common.timers.isEmpty, let other = common.timers.firstDue(at: now, filedBefore: limit) else {
            return own.timers.setAsideFirstDue(at: now, filedBefore: limit)
        }
        let first = own.timers.firstDue(at: now, filedBefore: limit)
        return (first?.precedes(other) == true ? own : common)
            .timers.setAsideFirstDue(at: now, filedBefore: limit)
    }

    private func fire(_ timer: Timer, at now: Int64) {
        guard let handler = begin(timer, at: now) else { return }
        handler(timer)
        finish(timer)
    }

    /// Begins a firing, unless the timer has been moved or invalidated meanwhile: then it is filed anew.
    private func begin(_ timer: Timer, at now: Int64) -> Timer.Handler? {
        timer.state.withLock { state in
            guard state.isIn(home), state.due <= now, !state.isFiring, !state.hasStrays(of: home),
                state.isValid
            else {
                file(timer, &state)
                return nil
            }
            state.isFiring = true
            state.isMoved = false
            if state.hasMorePlaces { setAsideElsewhere(state) }
            return state.handlerToCall()
        }
    }

    private func finish(_ timer: Timer) {
        guard timer.period > 0 else { return finishForGood(timer) }
        let now = Deadline.now.uptimeNanoseconds
        let elsewhere = timer.state.withLock { state -> RunLoop? in
            state.isFiring = false
            state.advance(by: timer.period, now: now)
            setBack(timer, &state)
            // The callout may have moved the timer to another loop, which sets it aside until now.
            return state.isIn(home) ? nil : state.loop
        }
        elsewhere?.refile(timer)
    }

    /// As ``file(_:_:)``, the short way for a timer that is where it was.
    private func setBack(_ timer: Timer, _ state: inout Timer.State) {
        guard state.isIn(home), let place = state.solePlace else { return file(timer, &state) }
        self.state(of: place.group).timers.setBack(place.slot, date: state.due, sequence: nextSequence())
    }

    private func finishForGood(_ timer: Timer) {
        let remains = timer.state.withLock { state in
            state.isFiring = false
            return state.retire()
        }
        timer.settle(remains)
    }

    private func setAsideElsewhere(_ state: borrowing Timer.State) {
        if let place = state.place { self.state(of: place.group).timers.setAside(place.slot, true) }
        for place in state.morePlaces { self.state(of: place.group).timers.setAside(place.slot, true) }
    }
}
