import Synchronization

extension RunLoop {
    /// Something that is done on a loop's thread after it has been signalled: Core Foundation's version-0
    /// source.
    ///
    /// ``signal()`` only marks; a sleeping loop notices when it next wakes, so call ``RunLoop/wakeUp()`` as
    /// well. Signals before the source is served coalesce into one. The mark is cleared before `perform` is
    /// called, so a signal from within asks for one more, which comes when `perform` has returned: it is not
    /// called within itself, though it runs the loop and the source leaves all modes and comes back. A source may
    /// be in several loops: whichever serves it first consumes the signal.
    ///
    /// All methods may be called from any thread.
    public final class Source: Sendable {
        /// The place among the sources that are signalled: lower ones are served first, equal ones in the
        /// order of signals.
        public let order: Int

        fileprivate struct State {
            var isValid = true
            /// The signal that waits to be served.
            var signal = Signal.none
            var stations: [LoopIdentity: Station] = [:]
            var callouts: Callouts?
        }

        fileprivate struct Callouts: Sendable {
            var scheduled: (@Sendable (RunLoop, Mode) -> Void)?
            var cancelled: (@Sendable (RunLoop, Mode) -> Void)?
            var perform: @Sendable () -> Void
        }

        fileprivate let state: Mutex<State>

        /// Makes a source; it does nothing until it is added to a loop.
        ///
        /// - Parameters:
        ///   - order: The place among the sources that are signalled.
        ///   - scheduled: Called for each mode the source gets into, with the loop.
        ///   - cancelled: Called for each mode the source leaves; also when it could not be added after all, as the
        ///     loop's thread has ended meanwhile.
        ///   - perform: Called on a loop's thread to serve a signal.
        public init(
            order: Int = 0,
            scheduled: (@Sendable (RunLoop, Mode) -> Void)? = nil,
            cancelled: (@Sendable (RunLoop, Mode) -> Void)? = nil,
            perform: @escaping @Sendable () -> Void
        ) {
            self.order = order
            let callouts = Callouts(scheduled: scheduled, cancelled: cancelled, perform: perform)
            state = Mutex(State(callouts: callouts))
        }

        /// Whether the source can still be served.
        public var isValid: Bool { state.withLock { $0.isValid } }

        /// Whether a signal waits to be served.
        public var isSignalled: Bool { state.withLock { $0.signal != .none } }

        /// Marks the source to be served. Wakes nobody; ignored by an invalid source.
        public func signal() {
            let loops = state.withLock { state -> [RunLoop] in
                guard state.isValid, state.signal == .none else { return [] }
                state.signal = .next()
                return state.beginNotes()
            }
            for loop in loops where !loop.inbox.noteSignalled(self) { state.withLock { $0.dropNote(loop) } }
        }

        /// Takes the source out of all its loops for good and lets go of its closures.
        public func invalidate() {
            let loops = state.withLock { state in
                state.isValid = false
                state.signal = .none
                return state.stations.values.map(\.loop)
            }
            for loop in loops { change(in: loop) { $0 = Membership() } }
            let dropped = state.withLock { $0.callouts.take() }
            withExtendedLifetime(dropped) {}
        }
    }
}

// MARK: - In a loop

extension RunLoop.Source {
    /// Changes the source's modes in `loop`, calls `scheduled` and `cancelled` for those it got into or left, and has
    /// the loop follow. A loop whose thread has ended meanwhile is left again.
    func change(in loop: RunLoop, _ change: (inout Membership) -> Void) {
        let common = loop.commonModes
        let (before, after, callouts) = state.withLock { state in
            var station = state.stations[loop.identity] ?? Station(loop: loop)
            change(&station.membership)
            if !state.isValid { station.membership = Membership() }
            let before = station.told
            station.told = station.membership.modes(common: common)
            state.stations[loop.identity] = station
            return (before, station.told, state.callouts)
        }
        for mode in after.subtracting(before).members { callouts?.scheduled?(loop, mode) }
        var left = before.subtracting(after)
        if !loop.atHome({ [self] core in file(in: core) }) {
            left.formUnion(state.withLock { $0.forget(loop) })
        }
        for mode in left.members { callouts?.cancelled?(loop, mode) }
    }

    func contains(_ mode: RunLoop.Mode, in loop: RunLoop) -> Bool {
        let common = loop.commonModes
        return state.withLock {
            $0.stations[loop.identity]?.membership.contains(mode, common: common) ?? false
        }
    }

    // MARK: On the loop's thread

    /// Brings the loop's groups up to date with the source's modes.
    func file(in core: RunLoop.Core) {
        update(in: core) { station in station.file(self, in: core) }
    }

    /// Has a signal wait in the loop's groups that the inbox has brought.
    func fileSignal(in core: RunLoop.Core) {
        update(in: core) { station in station.isNoted = false }
    }

    /// Changes the station, has the signal wait in the groups where that is filed, and drops what is over.
    private func update(in core: RunLoop.Core, _ change: (inout Station) -> Void) {
        state.withLock { state in
            guard var station = state.stations.removeValue(forKey: core.home) else { return }
            change(&station)
            station.fileSignal(state.signal, of: self, in: core)
            if !station.isOver { state.stations[core.home] = station }
        }
    }

    /// Serves a signal that waits in the loop's groups. False if there is none any longer, or the callback is under way
    /// on this loop's stack; the signal does not wait there then.
    func perform(_ signal: Signal, in core: RunLoop.Core) -> Bool {
        var callouts: Callouts?
        state.withLock { state in
            guard var station = state.stations.removeValue(forKey: core.home) else { return }
            if state.signal == signal, !station.isPerforming {
                callouts = state.callouts
                state.signal = .none
                station.isPerforming = true
            }
            station.fileSignal(state.signal, of: self, in: core)
            state.stations[core.home] = station
        }
        guard let callouts else { return false }
        callouts.perform()
        update(in: core) { $0.isPerforming = false }
        return true
    }
}

extension RunLoop.Source.State {
    /// The loops whose inboxes have to be told of a signal, as they have not been told of one that they have yet to
    /// take in.
    fileprivate mutating func beginNotes() -> [RunLoop] {
        var loops: [RunLoop] = []
        for (home, station) in stations where !station.isNoted && !station.membership.isEmpty {
            stations[home]?.isNoted = true
            loops.append(station.loop)
        }
        return loops
    }

    /// Takes back a note that a loop has not taken in, as its thread has ended.
    fileprivate mutating func dropNote(_ loop: RunLoop) {
        stations[loop.identity]?.isNoted = false
        if stations[loop.identity]?.isOver == true { stations[loop.identity] = nil }
    }

    /// Leaves a loop whose thread has ended; the modes that `cancelled` has to be called for. Where the source is still
    /// filed there, the loop's end sees to it.
    fileprivate mutating func forget(_ loop: RunLoop) -> ModeSet {
        guard stations[loop.identity]?.isFiled == false else { return ModeSet() }
        return stations.removeValue(forKey: loop.identity)?.told ?? ModeSet()
    }
}

// MARK: - Where it is

extension RunLoop.Source {
    /// The loops that the source is in, which whoever signals it may want to wake.
    package var loops: [RunLoop] {
        state.withLock { $0.stations.values.filter { !$0.membership.isEmpty }.map(\.loop) }
    }

    var isInLoop: Bool { state.withLock { $0.stations.values.contains { !$0.membership.isEmpty } } }
}
