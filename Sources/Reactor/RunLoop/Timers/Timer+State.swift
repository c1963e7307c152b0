extension Timer {
    /// What a timer's lock guards.
    ///
    /// A program may have a million timers, so this holds what every timer has, and ``Details`` the rest.
    struct State: ~Copyable {
        /// The date that is, or will be, served next: the start of the phase.
        var due: Int64
        /// The closure; nil once the timer is invalid.
        private(set) var handler: Handler?
        /// The loop that the timer is in.
        private(set) var loop: RunLoop?
        private var details: Box<Details>?
        private var modes = Modes.none
        private var firstEntry = ModeEntry.none
        /// Whether the closure belongs to the thread of a loop.
        let isConfined: Bool
        var isFiring = false
        /// Whether the running callback has set another date.
        var isMoved = false

        /// The index of the only mode that the timer is in, or one of these.
        private enum Modes {
            static var none: Int32 { -1 }
            /// None, as the loop has ended.
            static var ended: Int32 { -3 }
            /// See ``Details/membership``.
            static var several: Int32 { -2 }
        }

        /// Destroys the closure on its owner's thread also when the last reference to the timer is released. The timer
        /// is in no loop then, because the loop would hold a reference.
        deinit {
            if let handler { Self.release(handler, details) }
        }

        @inline(never)
        private static func release(_ handler: consuming Handler, _ details: Box<Details>?) {
            Timer.DetachedHandler(handler, owner: details?.value.owner).release()
        }
    }

    /// What few timers have.
    fileprivate struct Details: Sendable {
        /// The value of ``Timer/fireDate``, if that is not the date that is served.
        var date: Int64?
        var tolerance: Int64 = 0
        var name: ItemName?
        var membership = Membership()
        /// Where the timer is entered besides its first place.
        var otherEntries: [ModeEntry] = []
        /// The loop whose thread the closure belongs to, unless the timer is in that loop.
        var owner: RunLoop?
    }

    fileprivate final class Box<Value: Sendable>: Sendable {
        let value: Value

        init(_ value: Value) { self.value = value }
    }

    /// A timer's closure, which may belong to the thread of a loop.
    ///
    /// `@unchecked Sendable`: a closure that is not `@Sendable` comes with an owner, the run loop of the thread that made
    /// it. ``State/beginFiring()`` returns it on that thread only, and ``DetachedHandler/release()`` destroys it there.
    /// After that thread has ended, no thread calls it, and the last one with a reference destroys it.
    struct Handler: ~Copyable, @unchecked Sendable {
        private let closure: (Timer) -> Void

        private init(_ closure: consuming @escaping (Timer) -> Void) { self.closure = closure }

        static func sendable(_ closure: @escaping @Sendable (Timer) -> Void) -> Handler { Handler(closure) }

        /// Only for a timer whose owner is the calling thread's loop.
        static func confined(_ closure: consuming @escaping (Timer) -> Void) -> Handler { Handler(closure) }

        /// For a call, during which the timer may release its own.
        var copy: Handler { Handler(closure) }

        consuming func take() -> (Timer) -> Void { closure }

        func callAsFunction(_ timer: Timer) { closure(timer) }
    }

    /// The closure of a timer that has become invalid. It is released outside the timer's lock, because what it captured
    /// may call anything when it is destroyed.
    struct DetachedHandler: ~Copyable {
        private let handler: Handler?
        /// The loop on whose thread the closure must be destroyed, if it belongs to one.
        private let owner: RunLoop?

        init(_ handler: consuming Handler? = nil, owner: RunLoop? = nil) {
            self.handler = consume handler
            self.owner = owner
        }

        @inline(__always)
        consuming func release() {
            guard let owner, !owner.identity.isCurrent, let handler else { return }
            let owned = LoopOwned(handler.take(), on: owner)
            // Now the box has the only reference, and destroys the closure there.
            withExtendedLifetime(owned) {}
        }
    }
}

extension ModeEntry {
    fileprivate static var none: ModeEntry { ModeEntry(mode: RunLoop.Mode(-1), slot: -1) }
}

extension Timer.State {
    /// In no loop.
    ///
    /// - Parameter isConfined: Whether the closure belongs to a thread, whose loop takes the timer next.
    init(
        due: Int64, date: Int64, tolerance: Int64, name: ItemName?, handler: consuming Timer.Handler,
        isConfined: Bool = false
    ) {
        self.due = due
        self.handler = consume handler
        self.isConfined = isConfined
        if date != due { change { $0.date = date } }
        if tolerance > 0 { self.tolerance = tolerance }
        if let name { self.name = name }
    }

    var isValid: Bool { handler != nil }

    func isIn(_ loop: LoopIdentity) -> Bool { self.loop?.identity == loop }

    /// Begins a call of the closure, and returns it; nil if the timer is invalid or the closure is being called. Traps on
    /// another thread than the closure's.
    mutating func beginFiring() -> Timer.Handler? {
        guard let handler = handlerToCall(), !isFiring else { return nil }
        isFiring = true
        return handler
    }

    private func handlerToCall() -> Timer.Handler? {
        if isConfined, let owner = loop?.identity ?? details?.value.owner?.identity {
            owner.requireCurrent("A timer whose closure need not be Sendable")
        }
        return switch handler {
        case .some(let handler): handler.copy
        case .none: nil
        }
    }

    /// The value of ``Timer/fireDate``: the date as it was set, even if that was in the past.
    var date: Int64 { details?.value.date ?? due }

    var tolerance: Int64 {
        get { details?.value.tolerance ?? 0 }
        set { change { $0.tolerance = newValue } }
    }

    var name: ItemName? {
        get { details?.value.name }
        set { change { $0.name = newValue } }
    }

    mutating func setDate(_ date: Int64, due: Int64) {
        self.due = due
        if date != due {
            change { $0.date = date }
        } else if details?.value.date != nil {
            change { $0.date = nil }
        }
    }

    @inline(never)
    private mutating func change(_ change: (inout Timer.Details) -> Void) {
        var details = details?.value ?? Timer.Details()
        change(&details)
        self.details = Timer.Box(details)
    }

    /// How late the timer may be, in nanoseconds, to share a wake-up: its tolerance, or a little if it has less.
    ///
    /// A sixty-fourth of its interval, half a millisecond at most, is the usual jitter of a repeating timer. A timer
    /// alone still fires at its date, but thousands of them share wake-ups.
    func window(of period: Int64) -> Int64 { max(tolerance, min(period / 64, 500_000)) }

    /// Sets the next date of a repeating timer, unless its callback has set one.
    mutating func advance(by period: Int64, now: Int64) {
        guard isValid, period > 0, !isMoved else { return }
        let next = Timer.nextDate(after: due, every: period, now: now)
        setDate(next, due: next)
    }

    /// Ends the timer. The caller keeps a reference to it, so that it is not destroyed under its own lock.
    mutating func invalidate() -> Timer.DetachedHandler {
        guard let handler = handler.take() else { return Timer.DetachedHandler() }
        guard let loop = loop.take() else {
            return Timer.DetachedHandler(handler, owner: details?.value.owner)
        }
        modes = Modes.none
        removeEntries(from: loop)
        return Timer.DetachedHandler(handler, owner: isConfined ? loop : nil)
    }

    // MARK: Modes

    /// The only mode that the timer is in; nil for several, or none.
    var onlyMode: RunLoop.Mode? { modes >= 0 ? RunLoop.Mode(modes) : nil }

    var membership: Membership {
        get {
            if let onlyMode { return Membership(onlyMode) }
            return modes == Modes.several ? details?.value.membership ?? Membership() : Membership()
        }
        set {
            if let only = newValue.single {
                modes = only.index
            } else {
                modes = Modes.several
                change { $0.membership = newValue }
            }
        }
    }

    /// Whether the timer has left its last loop because that had ended.
    var hasLoopEnded: Bool { modes == Modes.ended }

    /// Makes `loop` the owner of a closure of the calling thread, and adds the timer to a mode of it, if there is one.
    @inline(__always)
    mutating func confine(to loop: RunLoop, _ mode: RunLoop.Mode?) {
        if let mode {
            self.loop = loop
            modes = mode.index
        } else {
            change { $0.owner = loop }
        }
    }

    /// Adds the timer to a mode; false if it may not join that loop.
    mutating func add(_ mode: RunLoop.Mode, of loop: RunLoop) -> Bool {
        guard isValid else { return false }
        if let current = self.loop {
            guard current === loop else { return false }
            membership.add(mode, common: loop.commonModes)
        } else {
            let owner = details?.value.owner
            require(
                owner == nil || owner === loop,
                "A timer that was made by Timer.scheduled belongs to the loop of the thread that made it, and cannot be "
                    + "added to the \(loop.name): make it with Timer(…) and a Sendable closure.")
            self.loop = loop
            modes = mode.index
            if owner != nil { change { $0.owner = nil } }
        }
        return true
    }

    /// Removes the timer from a mode; false if it is not in that loop.
    mutating func remove(_ mode: RunLoop.Mode, of loop: RunLoop) -> Bool {
        guard self.loop === loop else { return false }
        var membership = membership
        membership.remove(mode, common: loop.commonModes)
        if membership.isEmpty { leave() } else { self.membership = membership }
        return true
    }

    /// Removes the timer from its loop. The caller keeps a reference to it.
    mutating func leave() {
        guard let loop = loop.take() else { return }
        if isConfined { change { $0.owner = loop } }
        modes = loop.inbox.isClosed ? Modes.ended : Modes.none
        removeEntries(from: loop)
    }

    /// Removes the timer from the queues of the loop that it has left: at once, or, on another thread than the loop's, when
    /// the loop takes in the request. Until then the loop may find it there; see ``has(_:)``.
    @inline(__always)
    private mutating func removeEntries(from loop: RunLoop) {
        guard let entry = onlyEntry, loop.identity.isCurrent else {
            return removeEntriesSlowly(from: loop)
        }
        firstEntry = .none
        loop.useCore { $0.remove(entry) }
    }

    @inline(never)
    private mutating func removeEntriesSlowly(from loop: RunLoop) {
        let entries = entries
        guard !entries.isEmpty else { return }
        self.entries = ModeEntries()
        loop.runOnLoopThread { core in entries.forEach(core.remove) }
    }

    // MARK: Entries

    /// Where the timer is entered in its loop.
    var entries: ModeEntries {
        get {
            guard firstEntry.slot >= 0 else { return ModeEntries() }
            return ModeEntries(firstEntry, details?.value.otherEntries ?? [])
        }
        set {
            firstEntry = newValue.first ?? .none
            let others = Array(newValue.dropFirst())
            if hasOtherEntries || !others.isEmpty { change { $0.otherEntries = others } }
        }
    }

    /// Where the timer is entered, if that is one place.
    var onlyEntry: ModeEntry? {
        firstEntry.slot >= 0 && !hasOtherEntries ? firstEntry : nil
    }

    /// False for a place that the timer has left while the loop has yet to take in the request.
    func has(_ entry: ModeEntry) -> Bool {
        firstEntry == entry || (hasOtherEntries && entries.contains(entry))
    }

    var hasOtherEntries: Bool { details?.value.otherEntries.isEmpty == false }

    mutating func setOnlyEntry(_ entry: ModeEntry) { firstEntry = entry }
}
