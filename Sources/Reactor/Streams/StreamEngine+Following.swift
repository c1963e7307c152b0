import SystemPackage

// On a loop's own thread: what its station has to be like, and how it gets to be that.

extension StreamEngine {
    /// What a station has to be like.
    struct Plan {
        let station: DescriptorSource
        let membership: Membership
        let interest: Readiness
        /// What the kernel is to watch; nil while there is nothing.
        let descriptor: DescriptorHolder?
        let isRaised: Bool
    }

    /// What `loop`'s station has to be like now, which is taken as carried out.
    func plan(on loop: RunLoop) -> Plan? {
        state.withLock { state in
            let interest = state.setInterest(on: loop.identity, event)
            let isRaised = !state.isTelling && state.hasNews
            guard let station = state.homes.station(on: loop.identity)?.value else { return nil }
            return state.homes.update(loop.identity) { standing in
                (standing.isSummoned, standing.isSettled) = (false, true)
                return Plan(
                    station: station, membership: standing.membership, interest: interest,
                    descriptor: interest.isEmpty ? nil : backend.descriptor, isRaised: isRaised)
            }
        }
    }

    /// Takes in that the kernel refuses to watch the descriptor.
    fileprivate func failWatching(_ error: Errno, on loop: RunLoop) {
        state.withLock { state in
            state.homes.update(loop.identity) { $0.interest = [] }
            state.machine.failUnlessReleased(error)
        }
        refresh()
    }
}

extension StreamEngine: DescriptorSourceOwner {
    func loopEnded(_ loop: RunLoop) { _ = state.withLock { $0.homes.remove(loop.identity) } }
}

extension RunLoop.Core {
    /// Brings `engine`'s station here up to date, after what other threads have changed before: what one of them has
    /// closed must be out of the pollers before a descriptor with the same number comes in.
    func followInTurn(_ engine: StreamEngine) {
        if hasMoreCommands { return registerLater { core in core.follow(engine) } }
        collect()
        follow(engine)
    }

    /// Brings `engine`'s station here up to date.
    func follow(_ engine: StreamEngine) {
        guard let plan = engine.plan(on: loop), plan.station.join(loop) else { return }
        let station = plan.station
        do throws(Errno) {
            if let descriptor = plan.descriptor, station.descriptor.rawValue != descriptor.number {
                station.adopt(FileDescriptor(rawValue: descriptor.number))
            }
            try station.setInterest(plan.interest)
            if station.membership != plan.membership || (!station.isWatched && !plan.interest.isEmpty) {
                station.membership = plan.membership
                try file(station)
            }
        } catch {
            try? station.setInterest([])
            return engine.failWatching(error, on: loop)
        }
        if plan.isRaised { station.raise() }
    }
}

extension StreamEngine.State {
    /// What is to be done at home after a read or a write.
    @inline(__always)
    func errand(_ event: Stream.Event) -> StreamEngine.Errand {
        guard !isTelling, !homes.isEmpty else { return .none }
        if readying == .backend || room == .awaited, machine.isOpen { return .refresh }
        if homes.hasOthers || isBehind(homes.first!.standing, event) { return .follow }
        return hasNews ? .raise(homes.first!.station) : .none
    }

    /// Whether there is something to tell, and to a delegate.
    @inline(__always)
    var hasNews: Bool { !machine.raised.isEmpty && !lacksDelegate }

    /// Whether what the loop has the kernel watch for is not what it should be.
    @inline(__always)
    func isBehind(_ standing: StreamHome.Standing, _ event: Stream.Event) -> Bool {
        interest(isDisarmed: standing.isDisarmed, event) != standing.interest
    }

    /// Whether the kernel need not tell of `event`: the delegate has not answered it, or there is no delegate.
    @inline(__always)
    private func isUnanswered(_ event: Stream.Event) -> Bool {
        lacksDelegate || !machine.unanswered.isDisjoint(with: event)
    }

    /// What the kernel has to watch for. A loop that asks no longer, because the kernel told again of what has
    /// not been answered, asks again after the answer.
    @inline(__always)
    private func interest(isDisarmed: Bool, _ event: Stream.Event) -> Readiness {
        guard machine.isOpen else { return [] }
        switch readying {
        case .backend: return []
        case .kernel: return isDisarmed && isUnanswered(event) ? [] : Readiness(event)
        case .kernelWhenFull: return room == .none ? Readiness(event) : []
        }
    }

    /// Takes as carried out what a loop has the kernel watch for now.
    fileprivate mutating func setInterest(on loop: LoopIdentity, _ event: Stream.Event) -> Readiness {
        if !isUnanswered(event) { homes.update(loop) { $0.isDisarmed = false } }
        let isDisarmed = homes[loop]?.isDisarmed ?? false
        let interest = interest(isDisarmed: isDisarmed, event)
        homes.update(loop) { $0.interest = interest }
        return interest
    }

    /// Where there is room until a write finds none, nothing has to tell of it.
    mutating func raiseRoom(_ event: Stream.Event) {
        if readying == .kernelWhenFull, room == .assumed || room == .found { machine.raise(event) }
    }

    /// Whether the delegate would be told of room that has not been checked.
    func mustCheckRoom(_ event: Stream.Event) -> Bool {
        readying == .kernelWhenFull && room == .assumed && machine.raised.contains(event)
    }

    /// Takes in what room was found, unless another thread has written since there had been `transfers` writes: then
    /// its finding is the newer one.
    mutating func takeIn(_ room: Room, unlessMovedSince transfers: UInt64, _ event: Stream.Event) {
        guard transfers == machine.transfers else { return }
        self.room = room
        if room != .found { machine.withdraw(event) }
    }
}

extension Readiness {
    fileprivate init(_ event: Stream.Event) {
        self = event == .hasBytesAvailable ? .readable : .writable
    }
}
