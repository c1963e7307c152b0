import SystemPackage

// From a loop's attention to the delegate's callout.

extension StreamEngine {
    /// What a station's loop finds when it turns to the stream.
    private enum Finding {
        /// There is nothing to tell.
        case nothing
        /// The kernel tells again of what has been told: it should be quiet until the delegate answers.
        case again
        /// Bytes were moved since the kernel has been asked: it has to be asked once more, and believed unless there
        /// have been more transfers than these meanwhile.
        case doubt(since: UInt64)
        /// The kernel has room again, which the backend may need itself.
        case room
        case events(Stream.Event, first: Stream.Event)
        /// There are events, to be told elsewhere.
        case queue(StreamQueue)
    }

    /// Tells the delegate, on the thread of `station`'s loop, what has been raised, and what the kernel has
    /// told.
    func serve(_ station: DescriptorSource, _ readiness: Readiness) {
        guard let loop = station.loop else { return }
        let isTold = !readiness.isDisjoint(with: [.readable, .writable])
        var finding = find(on: loop, isTold: isTold)
        if case .doubt(let transfers) = finding {
            finding = find(on: loop, isTold: backend.isReady(), unlessMovedSince: transfers)
        }
        if case .room = finding {
            drain(station, on: loop)
            finding = find(on: loop, isTold: false)
        }
        switch finding {
        case .events(let events, let first): tell(events, first: first) { $0.isAtHome(on: loop) }
        case .queue(let queue): callOut(on: queue)
        case .again:
            station.isHandled = false
            try? station.setInterest([])
        case .nothing, .doubt, .room: station.isHandled = false
        }
    }

    /// Has the backend use the room that the kernel has told of, which is perhaps enough for the delegate.
    private func drain(_ station: DescriptorSource, on loop: RunLoop) {
        let transfers = state.withLock { $0.machine.transfers }
        do throws(Errno) {
            let drainage = try backend.drain()
            let interest = state.withLock {
                $0.takeIn(drainage, unlessMovedSince: transfers, on: loop.identity, event)
            }
            try station.setInterest(interest)
        } catch {
            fail(error)
        }
    }

    private func find(on loop: RunLoop, isTold: Bool, unlessMovedSince transfers: UInt64? = nil) -> Finding {
        state.withLock { state in
            if isTold, state.machine.isOpen || state.isDraining {
                if state.readying == .kernelWhenBlocked { return .room }
                // What it told of before a handler of the same pass moved bytes may be no longer so.
                if let transfers {
                    guard transfers == state.machine.transfers else { return .nothing }
                } else if state.hasMovedOutside {
                    state.hasMovedOutside = false
                    return .doubt(since: state.machine.transfers)
                }
                // It tells for as long as that is so. Taking the registration out costs a system call, and
                // putting it back another; so it stays, unless the kernel really does tell again of something
                // that the delegate has not answered.
                let canTell = !state.isTelling && state.machine.unanswered.isDisjoint(with: event)
                state.machine.raise(event)
                if !canTell {
                    state.homes.update(loop.identity) { ($0.isDisarmed, $0.interest) = (true, []) }
                    return .again
                }
            }
            let events = state.machine.raised
            guard !state.isTelling, !events.isEmpty, state.isAtHome(on: loop) else { return .nothing }
            if let queue = state.enqueueCallout() { return .queue(queue) }
            guard let first = state.machine.nextToTell(of: events) else { return .nothing }
            state.isTelling = true
            return .events(events, first: first)
        }
    }

    /// Calls the delegate, once for each of `events`, of which `first` is taken already, for as long as `isWanted`
    /// says so. What the answer raises at once waits for its turn: others want to be served too.
    func tell(_ events: Stream.Event, first: Stream.Event?, while isWanted: (State) -> Bool) {
        let stream = stream
        var (rest, next) = (events, first)
        while true {
            if next == nil {
                next = state.withLock { isWanted($0) ? $0.machine.nextToTell(of: rest) : nil }
            }
            guard let event = next.take() else { break }
            rest.subtract(event)
            if let stream {
                (stream.delegate ?? stream as? any StreamDelegate)?.stream(stream, handle: event)
            }
            if rest.isEmpty { break }
        }
        run(
            state.withLock { state in
                state.isTelling = false
                return state.errand(self.event)
            })
    }
}

extension StreamEngine.State {
    /// Whether the stream is still scheduled in the mode that `loop` is running in, on whose thread this is.
    fileprivate func isAtHome(on loop: RunLoop) -> Bool {
        guard let mode = loop.currentMode else { return false }
        let common = loop.core.commonModes
        return homes.look(loop.identity) { $0.membership.contains(mode, common: common) } ?? false
    }
}
