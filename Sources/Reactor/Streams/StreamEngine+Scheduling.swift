import SystemPackage

// The stream's stations on run loops, and how they are brought up to date.

extension StreamEngine {
    /// Whether the stream is scheduled, and `delegate` receives its events.
    func delivers(to delegate: any StreamDelegate) -> Bool {
        state.withLock { !$0.homes.isEmpty } && self.delegate === delegate
    }

    /// Gives the stream to a hand-off on `loop`, and removes it from its loops or its queue. False if another hand-off
    /// owns it.
    ///
    /// Until the stream is closed it cannot be scheduled elsewhere. Closing it wakes `loop`.
    func handOver(to loop: RunLoop) -> Bool {
        let isFree = state.withLock { state in
            let isFree = state.machine.handOver()
            if isFree { state.handoffLoop = loop }
            return isFree
        }
        if isFree { leaveLoops() }
        return isFree
    }

    /// Ends what ``handOver(to:)`` began; the hand-off closes the stream itself.
    func endHandoff() { _ = state.withLock { $0.handoffLoop.take() } }

    func schedule(in loop: RunLoop, _ mode: RunLoop.Mode) {
        loop.assertNotOfParent()
        leaveQueue()
        join(loop, mode) { _ in }
    }

    /// Makes the stream's station on a loop, unless it is over; `change` happens together with that.
    func join(_ loop: RunLoop, _ mode: RunLoop.Mode, _ change: (inout State) -> Void) {
        let common = loop.commonModes
        let isScheduled = state.withLock { state -> Bool in
            guard !state.machine.isClosed, state.handoffLoop == nil || state.handoffLoop === loop else {
                return false
            }
            state.machine.schedule(isFirst: state.homes.isEmpty)
            if state.homes[loop.identity] == nil {
                state.homes.append(StreamHome(loop, station: StreamStation(of: self)))
            }
            state.homes.update(loop.identity) { standing in
                standing.membership.add(mode, common: common)
                standing.isSettled = false
            }
            change(&state)
            return true
        }
        guard isScheduled else { return }
        summon(loop)
        refresh()
    }

    func remove(from loop: RunLoop, _ mode: RunLoop.Mode) {
        let common = loop.commonModes
        let (isKnown, left) = state.withLock { state -> (Bool, StreamHome?) in
            let isLeft = state.homes.update(loop.identity) { standing in
                standing.membership.remove(mode, common: common)
                standing.isSettled = false
                return standing.membership.isEmpty
            }
            return (isLeft != nil, isLeft == true ? state.homes.remove(loop.identity) : nil)
        }
        if let left { leave(left) } else if isKnown { summon(loop) }
    }

    func leaveLoops() {
        let left = state.withLock { state -> StreamHomes in
            defer { state.homes = StreamHomes() }
            state.dropQueue()
            return state.homes
        }
        for home in left { leave(home) }
    }

    private func leave(_ home: StreamHome) {
        let station = home.station
        home.loop.atHome { _ in station.value.end() }
    }

    // MARK: Bringing loops up to date

    /// What is to be done at home after a change.
    enum Errand {
        case none
        /// Ask the backend, which alone knows.
        case refresh
        /// Have the only loop serve the stream.
        case raise
        case follow
    }

    func run(_ errand: Errand) {
        switch errand {
        case .none: break
        case .refresh: refresh()
        case .raise: raise()
        case .follow: followEverywhere()
        }
    }

    private func raise() {
        guard let station = state.withLock({ $0.homes.station(on: .current) }) else {
            return followEverywhere()
        }
        station.value.raise()
    }

    /// Finds out whether bytes can be moved now, and brings the loops to tell what is to be told.
    func refresh() {
        advanceOpening()
        let (backend, since) = state.withLock {
            ($0.machine.isOpen && !$0.homes.isEmpty ? $0.backend : nil, $0.machine.transfers)
        }
        switch backend?.prepare() {
        case .failed(let error): fail(error)
        case let prospect?: state.withLock { $0.machine.answer(prospect, since: since) }
        case nil: break
        }
        followEverywhere()
    }

    /// Has every loop that is behind follow. While the delegate is being called nothing is done: this happens
    /// again when it returns.
    private func followEverywhere() {
        let (behind, queue) = state.withLock {
            state -> (ShortList<RunLoop>, StreamQueue?) in
            if state.machine.isDelivering { return (ShortList(), nil) }
            let isPending = state.machine.mustDeliver
            let action = state.queue == nil ? .none : state.machine.turnToQueue()
            let isLoopNeeded = isPending && action == .none
            let behind = state.homes.loops { isLoopNeeded || state.isBehind($0) }
            return (behind, action == .enqueue ? state.queue : nil)
        }
        for loop in behind { summon(loop) }
        if let queue { callOut(on: queue) }
    }

    /// Has `loop` follow: now if this is its thread, else when it next looks, for which it is woken.
    private func summon(_ loop: RunLoop) {
        if loop.isCurrent { return loop.core.followInTurn(self) }
        guard state.withLock({ $0.homes.update(loop.identity) { $0.beginSummons() } }) == true else { return }
        if !loop.atHome({ [self] core in core.followInTurn(self) }) { loopEnded(loop) }
    }
}

extension StreamHome.Standing {
    /// True if the loop has to be asked: it has not been asked already.
    fileprivate mutating func beginSummons() -> Bool {
        defer { isSummoned = true }
        return !isSummoned
    }
}
