import SystemPackage

// From a loop's attention to the delegate's callout.

extension StreamEngine {
    /// What a station's loop finds when it turns to the stream.
    private enum Finding {
        /// There is nothing to tell.
        case nothing
        /// The kernel tells again of what has been told: it should be quiet until the delegate answers.
        case again
        /// Bytes were moved since the kernel has been asked: it has to be asked once more.
        case doubt
        /// The kernel has room again, which the backend may need itself.
        case room
        case events(Stream.Event, first: Stream.Event)
    }

    /// Tells the delegate, on the thread of `station`'s loop, what has been raised, and what the kernel has
    /// told.
    func serve(_ station: DescriptorSource, _ readiness: Readiness) {
        guard let loop = station.loop else { return }
        let isTold = !readiness.isDisjoint(with: [.readable, .writable])
        var finding = find(on: loop, isTold: isTold, isSure: false)
        if case .doubt = finding { finding = find(on: loop, isTold: backend.isReady(), isSure: true) }
        if case .room = finding {
            drain(station, on: loop)
            finding = find(on: loop, isTold: false, isSure: true)
        }
        switch finding {
        case .events(let events, let first): tell(events, first, on: loop)
        case .again:
            station.isHandled = false
            try? station.setInterest([])
        case .nothing, .doubt, .room: station.isHandled = false
        }
    }

    /// Has the backend use the room that the kernel has told of, which is perhaps enough for the delegate.
    private func drain(_ station: DescriptorSource, on loop: RunLoop) {
        do throws(Errno) {
            let drainage = try backend.drain()
            let interest = state.withLock { $0.takeIn(drainage, on: loop.identity, event) }
            try station.setInterest(interest)
        } catch {
            fail(error)
        }
    }

    private func find(on loop: RunLoop, isTold: Bool, isSure: Bool) -> Finding {
        state.withLock { state in
            if isTold, state.machine.isOpen || state.isDraining {
                if state.readying == .kernelWhenBlocked { return .room }
                // What it told of before a handler of the same pass moved bytes may be no longer so.
                if state.hasMovedOutside, !isSure {
                    state.hasMovedOutside = false
                    return .doubt
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
            guard !state.isTelling, !events.isEmpty, state.isAtHome(on: loop),
                let first = state.machine.nextToTell(of: events)
            else { return .nothing }
            state.isTelling = true
            return .events(events, first: first)
        }
    }

    /// Calls the delegate, once for each of `events`. What the answer raises at once waits for its turn:
    /// others want to be served too.
    private func tell(_ events: Stream.Event, _ first: Stream.Event, on loop: RunLoop) {
        let stream = stream
        var (rest, event) = (events.subtracting(first), first)
        while true {
            if let stream {
                (stream.delegate ?? stream as? any StreamDelegate)?.stream(stream, handle: event)
            }
            if rest.isEmpty { break }
            let next = state.withLock { state in
                state.isAtHome(on: loop) ? state.machine.nextToTell(of: rest) : nil
            }
            guard let next else { break }
            event = next
            rest.subtract(next)
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
