import Synchronization

extension RunLoop {
    /// Work that a loop's thread performs after a signal: Core Foundation's version-0 source.
    ///
    /// ``signal()`` only marks the source; it does not wake a sleeping loop, so call ``RunLoop/wakeUp()`` as well. Signals
    /// that arrive before the source is performed coalesce into one. The mark is cleared before `perform` is called, so
    /// signalling again from within it asks for one more call, which comes after it has returned: `perform` is never
    /// called within itself, even if it runs the loop and the source is removed and added again meanwhile. A source may be
    /// in several loops: the first one to perform it consumes the signal.
    ///
    /// ```swift
    /// let redraw = RunLoop.Source { print("draw") }
    /// RunLoop.main.add(redraw, forMode: .common)
    /// redraw.signal()
    /// RunLoop.main.wakeUp()
    /// ```
    ///
    /// All methods may be called from any thread.
    public final class Source: Sendable {
        /// The place among the signalled sources: lower orders are performed first, equal orders as they were signalled.
        package let order: Int

        fileprivate struct State {
            var isValid = true
            /// The signal that has not been served yet.
            var signal = Signal.none
            var loops: [LoopIdentity: LoopState] = [:]
            /// Whether the loop that the source was last added to or removed from had ended.
            var hasLoopEnded = false
            var callbacks: Callbacks?
        }

        fileprivate struct Callbacks: Sendable {
            var scheduled: (@Sendable (RunLoop, Mode) -> Void)?
            var cancelled: (@Sendable (RunLoop, Mode) -> Void)?
            var perform: @Sendable () -> Void
        }

        fileprivate let state: Mutex<State>
        let name: ItemName?
        /// What a source of the library's own is for, in the place of ``name``.
        let subject: (@Sendable () -> String)?
        /// The name of its account in the ledger, if that is not its title.
        fileprivate let account: String?

        /// Creates a source; it does nothing until it is added to a loop.
        ///
        /// - Parameters:
        ///   - order: The place among the signalled sources.
        ///   - label: What dumps, ``LoopDiagnostics`` and explanations call the source.
        ///   - scheduled: Called with the loop for each mode that the source is added to.
        ///   - cancelled: Called for each mode that the source is removed from, and for those that `scheduled` was called for
        ///     if the loop's thread ends while the source is being added.
        ///   - perform: Called on a loop's thread to serve a signal.
        ///   - file: The file of the call, for reports.
        ///   - line: Its line.
        public init(
            order: Int = 0, label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
            scheduled: (@Sendable (RunLoop, Mode) -> Void)? = nil,
            cancelled: (@Sendable (RunLoop, Mode) -> Void)? = nil,
            perform: @escaping @Sendable () -> Void
        ) {
            self.order = order
            name = .make(label, file, line)
            (subject, account) = (nil, nil)
            let callbacks = Callbacks(scheduled: scheduled, cancelled: cancelled, perform: perform)
            state = Mutex(State(callbacks: callbacks))
        }

        /// Creates a source of the library's own, which reports and dumps call `subject`.
        ///
        /// - Parameter account: The name of its account in the ledger, where there may be very many sources.
        package init(
            named subject: @escaping @Sendable () -> String, account: String? = nil,
            cancelled: @escaping @Sendable (RunLoop, Mode) -> Void,
            perform: @escaping @Sendable () -> Void
        ) {
            (order, name, self.subject, self.account) = (0, nil, subject, account)
            state = Mutex(State(callbacks: Callbacks(cancelled: cancelled, perform: perform)))
        }

        /// What the source is, with its label.
        var title: String { subject?() ?? name.naming("source") }

        /// Whether the source can still be performed.
        public var isValid: Bool { state.withLock { $0.isValid } }

        /// Whether a signal is pending.
        package var isSignalled: Bool { state.withLock { $0.signal != .none } }

        /// Marks the source to be performed. Does not wake a loop; ignored by an invalid source.
        public func signal() {
            let loops = state.withLock { state -> [RunLoop] in
                guard state.isValid, state.signal == .none else { return [] }
                state.signal = .next()
                return state.enterInboxes()
            }
            for loop in loops where !loop.inbox.postSignal(of: self) {
                state.withLock { $0.leaveInbox(of: loop) }
            }
        }

        /// Removes the source from all its loops permanently and releases its closures.
        public func invalidate() {
            let loops = state.withLock { state in
                state.isValid = false
                state.signal = .none
                return state.loops.values.map(\.loop)
            }
            for loop in loops { change(in: loop) { $0 = Membership() } }
            let callbacks = state.withLock { $0.callbacks.take() }
            withExtendedLifetime(callbacks) {}
        }
    }
}

// MARK: - In a loop

extension RunLoop.Source {
    /// Changes the source's modes in `loop`, calls `scheduled` and `cancelled` for those that it was added to or removed
    /// from, and updates its entries. It leaves a loop whose thread has ended meanwhile.
    func change(in loop: RunLoop, _ change: (inout Membership) -> Void) {
        let common = loop.commonModes
        let (before, after, callbacks) = state.withLock { state in
            var loopState = state.loops[loop.identity] ?? LoopState(loop: loop)
            change(&loopState.membership)
            if !state.isValid { loopState.membership = Membership() }
            state.hasLoopEnded = loop.inbox.isClosed
            let before = loopState.announcedModes
            loopState.announcedModes = loopState.membership.modes(common: common)
            state.loops[loop.identity] = loopState
            return (before, loopState.announcedModes, state.callbacks)
        }
        for mode in after.subtracting(before).members { callbacks?.scheduled?(loop, mode) }
        var left = before.subtracting(after)
        if !loop.runOnLoopThread({ [self] core in updateEntries(in: core) }) {
            left.formUnion(state.withLock { $0.leave(loop) })
        }
        for mode in left.members { callbacks?.cancelled?(loop, mode) }
    }

    func contains(_ mode: RunLoop.Mode, in loop: RunLoop) -> Bool {
        let common = loop.commonModes
        return state.withLock { $0.loops[loop.identity]?.membership.contains(mode, common: common) ?? false }
    }

    /// The loops that the source is in, for a caller that signals it and wants to wake them.
    package var loops: [RunLoop] {
        state.withLock { $0.loops.values.filter { !$0.membership.isEmpty }.map(\.loop) }
    }

    /// The loops that the source is in, with its modes there.
    var memberships: [(RunLoop, Membership)] {
        state.withLock { $0.loops.values.filter { !$0.membership.isEmpty }.map { ($0.loop, $0.membership) } }
    }

    func membership(in loop: RunLoop) -> Membership {
        state.withLock { $0.loops[loop.identity]?.membership ?? Membership() }
    }

    /// The pending signal.
    var pendingSignal: Signal { state.withLock { $0.signal } }

    var hasLoopEnded: Bool { state.withLock { $0.hasLoopEnded } }

    /// Whether a loop is performing the source.
    var isPerforming: Bool { state.withLock { $0.loops.values.contains { $0.isPerforming } } }

    // MARK: On the loop's thread

    /// Makes the entries follow the modes, and calls `scheduled` for modes that became common after the thread that
    /// changed the source had read the common set: until now the source was not among those that the loop tells.
    func updateEntries(in core: RunLoop.Core) {
        var added = ModeSet()
        update(in: core) { loopState in
            loopState.updateEntries(of: self, in: core)
            added = loopState.announceModes(common: core.commonModes)
        }
        guard !added.isEmpty, let callbacks = state.withLock({ $0.callbacks }) else { return }
        for mode in added.members { callbacks.scheduled?(core.loop, mode) }
    }

    /// Takes in a signal that the inbox has brought.
    func receiveSignal(in core: RunLoop.Core) {
        update(in: core) { loopState in loopState.isInInbox = false }
    }

    /// Changes the source's state in the loop, enqueues a pending signal in the modes that it is then entered in, and
    /// drops the state if the source has left the loop.
    private func update(in core: RunLoop.Core, _ change: (inout LoopState) -> Void) {
        state.withLock { state in
            guard var loopState = state.loops.removeValue(forKey: core.identity) else { return }
            change(&loopState)
            loopState.enqueue(state.signal, of: self, in: core)
            if !loopState.hasEnded { state.loops[core.identity] = loopState }
        }
    }

    /// Performs the source for a signal from the loop's queues. False if the signal has been served elsewhere, or the
    /// callback is in progress on this loop's stack; the signal is no longer queued then.
    func perform(_ signal: Signal, in core: RunLoop.Core) -> Bool {
        var callbacks: Callbacks?
        state.withLock { state in
            guard var loopState = state.loops.removeValue(forKey: core.identity) else { return }
            if state.signal == signal, !loopState.isPerforming {
                callbacks = state.callbacks
                state.signal = .none
                loopState.isPerforming = true
            }
            loopState.enqueue(state.signal, of: self, in: core)
            state.loops[core.identity] = loopState
        }
        guard let callbacks else { return false }
        core.meter.others.add()
        core.meter.call(.source, { core.meter.push(title, account: account) }, { callbacks.perform() })
        update(in: core) { $0.isPerforming = false }
        return true
    }
}

extension RunLoop.Source.State {
    /// The loops to whose inboxes a signal must be posted: those that do not hold an earlier one.
    fileprivate mutating func enterInboxes() -> [RunLoop] {
        var entered: [RunLoop] = []
        for (identity, loopState) in loops where !loopState.isInInbox && !loopState.membership.isEmpty {
            loops[identity]?.isInInbox = true
            entered.append(loopState.loop)
        }
        return entered
    }

    /// Undoes ``enterInboxes()`` for a loop whose thread has ended.
    fileprivate mutating func leaveInbox(of loop: RunLoop) {
        loops[loop.identity]?.isInInbox = false
        if loops[loop.identity]?.hasEnded == true { loops[loop.identity] = nil }
    }

    /// Leaves a loop whose thread has ended, and returns the modes that `cancelled` must be called for. Where the source is
    /// still entered, the loop's end removes it.
    fileprivate mutating func leave(_ loop: RunLoop) -> ModeSet {
        guard loops[loop.identity]?.isEntered == false else { return ModeSet() }
        return loops.removeValue(forKey: loop.identity)?.announcedModes ?? ModeSet()
    }
}

extension RunLoop.Source {
    /// A source's state in one loop.
    fileprivate struct LoopState {
        let loop: RunLoop
        var membership = Membership()
        /// The modes that `scheduled` has been called for, and `cancelled` has not.
        var announcedModes = ModeSet()
        private var entries = ModeEntries()
        /// Where the signal is queued: in the modes that the source is entered in, or in none.
        private var signalEntries = ModeEntries()
        /// Whether the loop's inbox holds a signal of the source. It holds at most one.
        var isInInbox = false
        /// Whether the callback is in progress on the loop's stack. This outlasts the membership: a source that is added
        /// again meanwhile is not called within itself.
        var isPerforming = false

        init(loop: RunLoop) { self.loop = loop }

        var isEntered: Bool { !entries.isEmpty }

        /// Whether the source has left the loop. Another thread empties the membership before the loop's thread removes
        /// the source.
        var hasEnded: Bool { membership.isEmpty && entries.isEmpty && !isInInbox && !isPerforming }
    }

    /// A signal, numbered in the order in which the process makes them.
    struct Signal: Equatable {
        let number: UInt64

        /// Before every signal.
        static var none: Signal { Signal(number: 0) }

        static func next() -> Signal { Signal(number: last.add(1, ordering: .relaxed).newValue) }

        private static let last = Atomic<UInt64>(0)
    }
}

// On the loop's thread, with the source's lock held: nothing here calls user code.

extension RunLoop.Source.LoopState {
    /// Adds the modes that the source is in to those that `scheduled` has been called for, and returns the new ones.
    fileprivate mutating func announceModes(common: ModeSet) -> ModeSet {
        let added = membership.modes(common: common).subtracting(announcedModes)
        announcedModes.formUnion(added)
        return added
    }

    /// Enters `source` in the modes that it is in, and removes it from the others.
    fileprivate mutating func updateEntries(of source: RunLoop.Source, in core: RunLoop.Core) {
        dequeueSignal(in: core)
        entries.update(membership.entryModes(common: core.commonModes)) { entry in
            core.state(of: entry.mode).sources.remove(entry.slot)
        } insert: { mode in
            core.state(of: mode).sources.insert(source)
        }
    }

    /// Queues `signal`, and no other, in the modes that the source is entered in; not while the inbox holds it, which
    /// delivers it in order, nor during the callback.
    fileprivate mutating func enqueue(
        _ signal: RunLoop.Source.Signal, of source: RunLoop.Source, in core: RunLoop.Core
    ) {
        dequeueSignal(in: core)
        guard signal != .none, !isInInbox, !isPerforming else { return }
        signalEntries.update(entries.modes) { _ in
        } insert: { mode in
            core.state(of: mode).signals.insert(source, signal)
        }
    }

    private mutating func dequeueSignal(in core: RunLoop.Core) {
        signalEntries.removeAll { entry in
            core.state(of: entry.mode).signals.remove(entry.slot)
        }
    }
}

/// The signalled sources of one mode: lower orders first, equal orders as they were signalled.
struct SignalQueue: ~Copyable {
    struct Entry {
        let source: RunLoop.Source
        let signal: RunLoop.Source.Signal

        func precedes(_ other: Entry) -> Bool {
            (source.order, signal.number) < (other.source.order, other.signal.number)
        }
    }

    private var heap = IndexedHeap<RunLoop.Source, Void>()

    var isEmpty: Bool { heap.isEmpty }

    mutating func insert(_ source: RunLoop.Source, _ signal: RunLoop.Source.Signal) -> Int32 {
        heap.insert(source, priority: Int64(source.order), sequence: signal.number, mark: ())
    }

    mutating func remove(_ slot: Int32) { heap.remove(slot) }

    /// The first of the sources that were signalled before `limit`.
    func first(before limit: RunLoop.Source.Signal) -> Entry? {
        let node = heap.first(upTo: .max) { $0.sequence < limit.number }
        guard let node, let source = heap[node.slot] else { return nil }
        return Entry(source: source, signal: RunLoop.Source.Signal(number: node.sequence))
    }
}
