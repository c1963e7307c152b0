import Synchronization

extension RunLoop {
    /// Something that is done on a loop's thread after it has been signalled: Core Foundation's version-0
    /// source.
    ///
    /// ``signal()`` only marks; a sleeping loop notices when it next wakes, so call ``RunLoop/wakeUp()`` as
    /// well. Signals before the source is served coalesce into one. The mark is cleared before `perform` is
    /// called, so a signal from within asks for one more. A source may be in several loops: whichever serves
    /// it first consumes the signal.
    ///
    /// All methods may be called from any thread.
    public final class Source: Sendable {
        /// The place among the sources that are signalled: lower ones are served first, equal ones in the
        /// order of signals.
        public let order: Int

        /// What the source is in one loop.
        fileprivate struct Station {
            let loop: RunLoop
            var membership = Membership()
            /// The modes that the callouts have been told of.
            var told = ModeSet()
            /// Where the loop's thread has filed it.
            var filed = ModeSet()
            var isPerforming = false
        }

        fileprivate struct State {
            var isValid = true
            var isSignalled = false
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
        ///   - cancelled: Called for each mode the source leaves.
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
        public var isSignalled: Bool { state.withLock { $0.isSignalled } }

        /// Marks the source to be served. Wakes nobody; ignored by an invalid source.
        public func signal() {
            let loops = state.withLock { state -> [RunLoop] in
                guard state.isValid, !state.isSignalled else { return [] }
                state.isSignalled = true
                return state.stations.values.map(\.loop)
            }
            for loop in loops { loop.inbox.noteSignalled(self) }
        }

        /// Takes the source out of all its loops for good and lets go of its closures.
        public func invalidate() {
            let loops = state.withLock { state in
                state.isValid = false
                state.isSignalled = false
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
    /// Changes the source's modes in `loop`, tells of those it got into or left, and has the loop follow.
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
        let isHome = loop.atHome { [self] core in core.file(self) }
        for mode in before.subtracting(after).members { callouts?.cancelled?(loop, mode) }
        if !isHome { state.withLock { $0.stations[loop.identity] = nil } }
    }

    func contains(_ mode: RunLoop.Mode, in loop: RunLoop) -> Bool {
        let common = loop.commonModes
        return state.withLock {
            $0.stations[loop.identity]?.membership.contains(mode, common: common) ?? false
        }
    }

    /// Tells of a mode that the source got into because it became common.
    func modeBecameCommon(_ mode: RunLoop.Mode, in loop: RunLoop) {
        change(in: loop) { $0.modeBecameCommon(mode) }
    }

    /// Brings the filing up to date: which groups the source leaves and enters, and whether it waits to be
    /// served.
    func refile(home: LoopIdentity) -> (leaves: ModeSet, enters: ModeSet, isSignalled: Bool) {
        state.withLock { state in
            guard var station = state.stations[home] else { return (ModeSet(), ModeSet(), false) }
            let wanted = station.membership.groups
            let change = (
                station.filed.subtracting(wanted), wanted.subtracting(station.filed), state.isSignalled
            )
            station.filed = wanted
            state.stations[home] = station.membership.isEmpty ? nil : station
            return change
        }
    }

    func filedGroups(home: LoopIdentity) -> ModeSet {
        state.withLock { $0.stations[home]?.filed ?? ModeSet() }
    }

    /// Serves a signal. False if there is none, or the callout is already under way on this loop's stack.
    func perform(home: LoopIdentity) -> Bool {
        let callouts = state.withLock { state -> Callouts? in
            guard state.isSignalled, let station = state.stations[home], !station.isPerforming else {
                return nil
            }
            state.isSignalled = false
            state.stations[home]?.isPerforming = true
            return state.callouts
        }
        guard let callouts else { return false }
        callouts.perform()
        state.withLock { $0.stations[home]?.isPerforming = false }
        return true
    }
}

// MARK: - Where it is

extension RunLoop.Source {
    /// The loops that the source is in, which whoever signals it may want to wake.
    package var loops: [RunLoop] {
        state.withLock { $0.stations.values.filter { !$0.membership.isEmpty }.map(\.loop) }
    }

    var isInLoop: Bool { state.withLock { $0.stations.values.contains { !$0.membership.isEmpty } } }

    func membership(in loop: RunLoop) -> Membership {
        state.withLock { $0.stations[loop.identity]?.membership ?? Membership() }
    }
}
