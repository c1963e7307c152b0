import SystemPackage

// From a loop's attention to the delegate's callout.

extension StreamEngine {
    /// An event that is to be told now, and to whom.
    struct News: ~Copyable {
        /// Taken already; nil if there was nothing to tell.
        let event: Stream.Event?
        /// Those that were raised beside it, and are told after it. What the answers raise waits for its turn: others
        /// want to be served too.
        let rest: Stream.Event
        fileprivate let stream: Stream?
        /// Nil if the stream has to be asked.
        fileprivate let delegate: (any StreamDelegate)?
    }

    /// What a station's loop finds when it turns to the stream, besides news.
    fileprivate enum Finding {
        case nothing
        /// The kernel tells again of what has been told: it should be quiet until the delegate answers.
        case again
        /// Bytes were moved since the kernel has been asked: it has to be asked once more, and believed unless there
        /// have been more transfers than these meanwhile.
        case doubt(since: UInt64)
        /// There is room to tell of, as far as is known: it has to be checked, and the answer is good unless there have
        /// been more writes than these meanwhile.
        case assumedRoom(since: UInt64)
        /// There is something to tell, elsewhere.
        case queue(StreamQueue)
    }

    /// Tells the delegate, on the thread of `station`'s loop, what has been raised, and what the kernel has
    /// told.
    func serve(_ station: DescriptorSource, _ readiness: Readiness) {
        turn(to: station, isTold: !readiness.isDisjoint(with: [.readable, .writable]))
    }

    /// As ``serve(_:_:)``; `isTold` says whether bytes can be moved, unless that was found out before the last transfer.
    private func turn(to station: DescriptorSource, isTold: Bool, unlessMovedSince transfers: UInt64? = nil) {
        var news: News?
        let finding = find(&news, isTold: isTold, unlessMovedSince: transfers)
        if let news = news.take() {
            if !tell(news, while: { $0.isAtHome }) { station.isHandled = false }
            return
        }
        switch finding {
        case .nothing: station.isHandled = false
        case .again:
            station.isHandled = false
            try? station.setInterest([])
        case .doubt(let transfers): turn(to: station, isTold: backend.isReady(), unlessMovedSince: transfers)
        case .assumedRoom(let transfers): checkRoom(station, since: transfers)
        case .queue(let queue): callOut(on: queue)
        }
    }

    private func checkRoom(_ station: DescriptorSource, since transfers: UInt64) {
        do throws(Errno) {
            let room = try (backend as? any OutputBackend)?.checkRoom() ?? .none
            state.withLock { $0.takeIn(room, unlessMovedSince: transfers, event) }
            // A buffer may have been drained meanwhile; a kernel that has no room has to be watched.
            if room == .awaited { refresh() } else if room == .none { RunLoop.current.core.follow(self) }
        } catch {
            fail(error)
        }
        turn(to: station, isTold: false)
    }

    private func find(
        _ news: inout News?, isTold: Bool, unlessMovedSince transfers: UInt64?
    ) -> Finding {
        state.withLock { state in
            if isTold, let finding = state.takeIn(event, unlessMovedSince: transfers) { return finding }
            guard !state.isTelling, !state.machine.raised.isEmpty, state.isServed else { return .nothing }
            if state.mustCheckRoom(self.event) { return .assumedRoom(since: state.machine.transfers) }
            if let queue = state.enqueueCallout() { return .queue(queue) }
            state.isTelling = true
            news = takeNews(&state, of: state.machine.raised)
            return .nothing
        }
    }

    /// Takes the first of `events` that is raised. For use with `state` locked.
    ///
    /// Room that another thread, or the delegate itself, has used meanwhile is checked again before it is told of.
    func takeNews(_ state: inout State, of events: Stream.Event) -> News {
        state.hasNewDelegate = false
        let events = state.mustCheckRoom(event) ? events.subtracting(event) : events
        let event = state.machine.nextToTell(of: events)
        let (stream, delegate) = audience(state)
        return News(
            event: event, rest: events.subtracting(event ?? []), stream: stream, delegate: delegate)
    }

    /// Calls the delegate, once for each event, for as long as `isWanted` says so. An event that finds no delegate
    /// waits for one.
    ///
    /// Returns whether the first event has been delivered.
    @discardableResult
    func tell(_ first: consuming News, while isWanted: (borrowing State) -> Bool) -> Bool {
        let firstEvent = first.event
        var next: News? = first
        var undelivered: Stream.Event?
        while let news = next.take() {
            let event = news.event
            guard let rest = news.tell() else {
                undelivered = event
                break
            }
            guard !rest.isEmpty else { break }
            state.withLock { if isWanted($0) { next = takeNews(&$0, of: rest) } }
        }
        run(state.withLock { $0.finishTelling(self.event, undelivered) })
        return undelivered == nil || undelivered != firstEvent
    }
}

extension StreamEngine.News {
    /// Calls the delegate, and lets go of it; what there is to tell after that. Nil if there is no delegate.
    ///
    /// It is looked at in place: giving names to what is here would count references.
    fileprivate consuming func tell() -> Stream.Event? {
        guard let event, stream != nil else { return [] }
        if delegate != nil {
            delegate!.stream(stream!, handle: event)
        } else if let delegate = stream!.delegate ?? stream! as? any StreamDelegate {
            delegate.stream(stream!, handle: event)
        } else {
            return nil
        }
        return rest
    }
}

extension StreamEngine.State {
    /// Takes in that bytes can be moved, unless that was found out before the last transfer; what that comes to, if
    /// there is not simply something to tell.
    @inline(always)
    fileprivate mutating func takeIn(
        _ event: Stream.Event, unlessMovedSince transfers: UInt64?
    ) -> StreamEngine.Finding? {
        guard machine.isOpen else { return nil }
        // What it told of before a handler of the same pass moved bytes may be no longer so. Room is asked for anyway
        // before the delegate is told of it.
        if readying == .kernelWhenFull {
            if room == .none { room = .assumed }
        } else if let transfers {
            guard transfers == machine.transfers else { return .nothing }
        } else if hasMovedOutside {
            hasMovedOutside = false
            return .doubt(since: machine.transfers)
        }
        // It tells for as long as that is so. Taking the registration out costs a system call, and putting it back
        // another; so it stays, unless the kernel really does tell again of something that the delegate has not
        // answered, or that waits for a delegate.
        let isAwaitingDelegate = lacksDelegate && !machine.raised.isDisjoint(with: event)
        let canTell = !isTelling && !isAwaitingDelegate && machine.unanswered.isDisjoint(with: event)
        machine.raise(event)
        if canTell { return nil }
        homes.update(.current) { ($0.isDisarmed, $0.interest) = (true, []) }
        return .again
    }

    /// Whether the station that this thread's loop is serving is where the stream is scheduled.
    fileprivate var isServed: Bool { homes[.current].map { $0.isSettled || isAtHome } ?? false }

    /// Whether the stream is scheduled in the mode that this thread's loop is running in.
    fileprivate var isAtHome: Bool {
        let loop = RunLoop.current
        guard let mode = loop.currentMode, let standing = homes[loop.identity] else { return false }
        return standing.membership.contains(mode, common: loop.core.commonModes)
    }

    fileprivate mutating func finishTelling(
        _ event: Stream.Event, _ undelivered: Stream.Event?
    ) -> StreamEngine.Errand {
        isTelling = false
        lacksDelegate = false
        if let undelivered {
            lacksDelegate = !hasNewDelegate
            machine.restore(undelivered)
        }
        return errand(event)
    }

    /// Prepares for a new delegate, which is told again what its predecessor has not answered. Returns whether there
    /// are loops to bring up to date.
    mutating func welcomeDelegate() -> Bool {
        (lacksDelegate, hasNewDelegate) = (false, true)
        machine.forgetTold()
        return !homes.isEmpty
    }
}
