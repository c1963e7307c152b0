import SystemPackage

// On a loop's own thread: what its station has to be like, and how it gets to be that.

extension StreamEngine {
    /// What a station has to be like.
    struct Plan {
        let station: StreamStation
        let membership: Membership
        let interest: Readiness
        /// What the kernel is to watch; nil while there is nothing.
        let descriptor: DescriptorHolder?
        let isRaised: Bool
    }

    /// What `loop`'s station has to be like now, which is taken as carried out.
    func plan(on loop: RunLoop) -> Plan? {
        state.withLock { state in
            let interest = state.setInterest(on: loop.identity)
            let isRaised = state.machine.mustDeliver
            let descriptor = interest.isEmpty ? nil : state.backend.descriptor
            guard let station = state.homes.station(on: loop.identity)?.value else { return nil }
            return state.homes.update(loop.identity) { standing in
                (standing.isSummoned, standing.isSettled) = (false, true)
                return Plan(
                    station: station, membership: standing.membership, interest: interest,
                    descriptor: descriptor, isRaised: isRaised)
            }
        }
    }

    /// Takes in that the kernel refuses to watch the descriptor.
    fileprivate func failWatching(_ error: Errno, on loop: RunLoop) {
        state.withLock { state in
            state.homes.update(loop.identity) { $0.interest = [] }
            state.machine.fail(error)
        }
        refresh()
    }
}

extension StreamEngine {
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
            if let descriptor = plan.descriptor, station.holder !== descriptor { station.adopt(descriptor) }
            try station.setInterest(plan.interest)
            if station.membership != plan.membership || (!station.isRegistered && !plan.interest.isEmpty) {
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
    /// What is to be done at home after a change.
    @inline(__always)
    var errand: StreamEngine.Errand { machine.isDelivering ? .none : nextErrand }

    @inline(never)
    private var nextErrand: StreamEngine.Errand {
        switch machine.next(isScheduled: !homes.isEmpty) {
        case .askBackend: .refresh
        case .updateLoops where homes.hasOthers || isBehind(homes.first!.standing): .follow
        case .updateLoops where machine.mustDeliver: .raise
        default: .none
        }
    }

    /// Whether what the loop has the kernel watch for is not what it should be.
    @inline(__always)
    func isBehind(_ standing: StreamHome.Standing) -> Bool {
        interest(isDisarmed: standing.isDisarmed) != standing.interest
    }

    @inline(__always)
    private func interest(isDisarmed: Bool) -> Readiness {
        guard machine.needsWatch(isDisarmed: isDisarmed) else { return [] }
        return machine.event == .hasBytesAvailable ? .readable : .writable
    }

    /// Takes as carried out what a loop has the kernel watch for now.
    fileprivate mutating func setInterest(on loop: LoopIdentity) -> Readiness {
        if machine.isAnswered { homes.update(loop) { $0.isDisarmed = false } }
        let interest = interest(isDisarmed: homes[loop]?.isDisarmed ?? false)
        homes.update(loop) { $0.interest = interest }
        return interest
    }
}
