extension Timer {
    /// What a timer's lock guards.
    ///
    /// A program may have a million timers, so this has room for what every timer has, and ``Details`` for the
    /// rest; and "none" is a number that is none.
    struct State: ~Copyable {
        /// The date that is, or will be, served next: the start of the phase.
        var due: Int64
        /// The closure, as long as the timer is valid.
        private(set) var handler: Handler?
        /// The loop that it is in.
        private(set) var loop: RunLoop?
        private var details: Box<Details>?
        private var group = Group.none
        private var queued = Place.none
        /// Whether the closure belongs to the thread of a loop.
        let isConfined: Bool
        var isFiring = false
        /// Whether the callout that is under way has set another date.
        var isMoved = false

        /// The only group that it is filed in, as a mode's index.
        private enum Group {
            static var none: Int32 { -1 }
            /// Or else as its details say.
            static var several: Int32 { -2 }
        }

        /// The closure is destroyed on its loop's thread also when the timer's last owner releases it. The timer is in
        /// no loop then: that would keep it.
        deinit {
            if let handler { Self.release(handler, details) }
        }

        @inline(never)
        private static func release(_ handler: consuming Handler, _ details: Box<Details>?) {
            Timer.Remains(handler, home: details?.value.home).release()
        }
    }

    /// What few timers have.
    fileprivate struct Details: Sendable {
        /// What ``Timer/fireDate`` answers, if that is not the date that is served.
        var date: Int64?
        var tolerance: Int64 = 0
        var membership = Membership()
        /// Where it is queued besides its first place.
        var morePlaces: [Place] = []
        /// Places in loops that it has left, until those take it out of their queues.
        var strays: [(home: LoopIdentity, place: Place)] = []
        /// The closure's home, unless that is the loop that the timer is in.
        var home: RunLoop?
    }

    fileprivate final class Box<Value: Sendable>: Sendable {
        let value: Value

        init(_ value: Value) { self.value = value }
    }

    /// A timer's closure, which may belong to the thread of a loop.
    ///
    /// `@unchecked Sendable` is right because a closure that is not `@Sendable` comes with its home, a run loop:
    /// ``State/handlerToCall()`` looks first whether the thread is that loop's, and the closure is destroyed there too.
    struct Handler: ~Copyable, @unchecked Sendable {
        private let closure: (Timer) -> Void

        private init(_ closure: consuming @escaping (Timer) -> Void) { self.closure = closure }

        static func anywhere(_ closure: @escaping @Sendable (Timer) -> Void) -> Handler { Handler(closure) }

        /// Only for a timer whose home is the calling thread's loop.
        static func home(_ closure: consuming @escaping (Timer) -> Void) -> Handler { Handler(closure) }

        /// For a call: the timer may release its own meanwhile.
        var copy: Handler { Handler(closure) }

        func callAsFunction(_ timer: Timer) { closure(timer) }
    }

    /// What a timer leaves when it is over. Dealt with outside its lock, as the end of what a closure captured
    /// may call anything.
    struct Remains: ~Copyable {
        private let handler: Handler?
        /// Where the closure has to be destroyed, if it belongs to a thread.
        private let home: RunLoop?
        /// The loop that has yet to take the timer out of its queues.
        let loop: RunLoop?

        init(_ handler: consuming Handler? = nil, home: RunLoop? = nil, loop: RunLoop? = nil) {
            self.handler = consume handler
            (self.home, self.loop) = (home, loop)
        }

        /// Destroys the closure where it belongs.
        @inline(__always)
        consuming func release() {
            guard let home, !home.identity.isCurrent else { return }
            Parcel(handler).send(to: home.inbox)
        }
    }

    @inline(__always)
    func settle(_ remains: consuming Remains) {
        remains.loop?.refile(self)
        remains.release()
    }
}

extension Place {
    fileprivate static var none: Place { Place(group: RunLoop.Mode(-1), slot: -1) }
}

extension Timer.State {
    /// In no loop.
    ///
    /// - Parameter isConfined: Whether the closure belongs to a thread, whose loop takes the timer next.
    init(
        due: Int64, date: Int64, tolerance: Int64, handler: consuming Timer.Handler, isConfined: Bool = false
    ) {
        self.due = due
        self.handler = consume handler
        self.isConfined = isConfined
        if date != due { change { $0.date = date } }
        if tolerance > 0 { self.tolerance = tolerance }
    }

    var isValid: Bool { handler != nil }

    func isIn(_ loop: LoopIdentity) -> Bool { self.loop?.identity == loop }

    /// The closure, to be called on this thread: it must be one that it may be called on.
    func handlerToCall() -> Timer.Handler? {
        if isConfined, let home = loop?.identity ?? details?.value.home?.identity {
            precondition(home.isCurrent, "fired off its run loop's thread")
        }
        return switch handler {
        case .some(let handler): handler.copy
        case .none: nil
        }
    }

    /// What ``Timer/fireDate`` answers: the date as it was given, even if that was in the past.
    var date: Int64 { details?.value.date ?? due }

    var tolerance: Int64 {
        get { details?.value.tolerance ?? 0 }
        set { change { $0.tolerance = newValue } }
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

    /// How late the timer may be, in nanoseconds, to share a wake-up: its tolerance, or a little that was not asked for.
    ///
    /// A sixty-fourth of its interval, half a millisecond at most, is what a repeating timer's jitter is
    /// anyway; alone it still fires at its date, but thousands of them share some wake-ups.
    func window(of period: Int64) -> Int64 { max(tolerance, min(period / 64, 500_000)) }

    /// Sets the next date of a repeating timer, unless its callout has set one.
    mutating func advance(by period: Int64, now: Int64) {
        guard isValid, period > 0, !isMoved else { return }
        let next = Timer.nextDate(after: due, every: period, now: now)
        setDate(next, due: next)
    }

    /// Ends the timer.
    mutating func retire() -> Timer.Remains {
        guard let handler = handler.take() else { return Timer.Remains() }
        guard let loop = loop.take() else { return Timer.Remains(handler, home: details?.value.home) }
        group = Group.none
        if leaveQueues(of: loop) { return Timer.Remains(handler) }
        return Timer.Remains(handler, home: isConfined ? loop : nil, loop: loop)
    }

    // MARK: Modes

    /// The only group that it is filed in; nil if there are several, or none.
    var soleGroup: RunLoop.Mode? { group >= 0 ? RunLoop.Mode(group) : nil }

    var membership: Membership {
        get {
            if let soleGroup { return Membership(soleGroup) }
            return group == Group.several ? details?.value.membership ?? Membership() : Membership()
        }
        set {
            if let only = newValue.single {
                group = only.index
            } else {
                group = Group.several
                change { $0.membership = newValue }
            }
        }
    }

    /// Makes `loop` the home of a closure of the calling thread, and adds the timer to a mode of it, if there is one.
    @inline(__always)
    mutating func settle(in loop: RunLoop, _ mode: RunLoop.Mode?) {
        if let mode {
            self.loop = loop
            group = mode.index
        } else {
            change { $0.home = loop }
        }
    }

    /// Adds it to a mode; false if it may not join that loop.
    mutating func add(_ mode: RunLoop.Mode, of loop: RunLoop) -> Bool {
        guard isValid else { return false }
        if let current = self.loop {
            guard current === loop else { return false }
            membership.add(mode, common: loop.commonModes)
        } else {
            let home = details?.value.home
            precondition(
                home == nil || home === loop,
                "a timer whose closure belongs to a thread joins no other thread's loop")
            self.loop = loop
            group = mode.index
            if home != nil { change { $0.home = nil } }
        }
        return true
    }

    /// Takes it out of a mode; false if it is not in that loop.
    mutating func remove(_ mode: RunLoop.Mode, of loop: RunLoop) -> Bool {
        guard self.loop === loop else { return false }
        var membership = membership
        membership.remove(mode, common: loop.commonModes)
        if membership.isEmpty { leave() } else { self.membership = membership }
        return true
    }

    /// Takes it out of its loop. On another thread than the loop's its places become strays, which the loop has
    /// to be told of.
    mutating func leave() {
        guard let loop = loop.take() else { return }
        if isConfined { change { $0.home = loop } }
        group = Group.none
        leaveQueues(of: loop)
    }

    /// Takes it out of every queue of the loop that it has left; false if that has to be told. The caller keeps the timer:
    /// what it captured is not released here, under its lock.
    @inline(__always)
    @discardableResult
    private mutating func leaveQueues(of loop: RunLoop) -> Bool {
        guard loop.identity.isCurrent else {
            strand(loop.identity)
            return false
        }
        guard let place else { return true }
        loop.useCore { $0.remove(place) }
        self.place = nil
        if hasMorePlaces { leaveMorePlaces(of: loop.core) }
        return true
    }

    @inline(never)
    private mutating func leaveMorePlaces(of core: RunLoop.Core) {
        for place in morePlaces { core.remove(place) }
        morePlaces = []
    }

    // MARK: Places

    /// Where it is queued.
    var place: Place? {
        get { queued.slot < 0 ? nil : queued }
        set { queued = newValue ?? .none }
    }

    /// Where it is queued, if that is one place, and the right one.
    var solePlace: Place? {
        guard queued.slot >= 0, queued.group.index == group else { return nil }
        return details == nil || (!hasMorePlaces && !hasStrays) ? queued : nil
    }

    var hasMorePlaces: Bool { details?.value.morePlaces.isEmpty == false }

    var morePlaces: [Place] {
        get { details?.value.morePlaces ?? [] }
        set { if details != nil || !newValue.isEmpty { change { $0.morePlaces = newValue } } }
    }

    private mutating func strand(_ home: LoopIdentity) {
        guard let place else { return }
        let places = morePlaces + [place]
        change {
            $0.strays += places.map { (home, $0) }
            $0.morePlaces = []
        }
        self.place = nil
    }

    var hasStrays: Bool { details?.value.strays.isEmpty == false }

    func hasStrays(of home: LoopIdentity) -> Bool {
        hasStrays && details?.value.strays.contains { $0.home == home } == true
    }

    mutating func takeStrays(of home: LoopIdentity) -> [Place] {
        guard let strays = details?.value.strays, !strays.isEmpty else { return [] }
        change { $0.strays.removeAll { $0.home == home } }
        return strays.filter { $0.home == home }.map(\.place)
    }
}
