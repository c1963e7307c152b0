extension Timer {
    /// A place in the queue of one group of modes of the timer's loop.
    struct Place {
        let group: RunLoop.Mode
        let slot: TimerQueue<Timer>.Slot

        static var none: Place { Place(group: RunLoop.Mode(-1), slot: -1) }
    }

    /// What a timer's lock guards.
    ///
    /// A program may have a million timers, so this has room for what every timer has, and ``Details`` for the
    /// rest; and "none" is a number that is none.
    struct State: ~Copyable {
        /// The date that is, or will be, served next: the start of the phase.
        var due: Int64
        /// The closure, as long as the timer is valid.
        private(set) var handler: Handler?
        /// The loop that it is in; outside of all loops, the home of its closure.
        private var owner: RunLoop?
        private var details: Details?
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
    }

    /// What few timers have.
    ///
    /// `@unchecked Sendable` is right because each timer has its own, and touches it with its lock held.
    final class Details: @unchecked Sendable {
        /// What ``Timer/fireDate`` answers, if that is not the date that is served.
        var date: Int64?
        var tolerance: Int64 = 0
        var membership = Membership()
        /// Where it is queued besides its first place.
        var morePlaces: [Place] = []
        /// Places in loops that it has left, until those take it out of their queues.
        var strays: [(home: LoopIdentity, place: Place)] = []
        /// The closure's home, while the timer is in another loop.
        var home: RunLoop?
    }
}

extension Timer.State {
    init(due: Int64, date: Int64, tolerance: Int64, handler: Timer.Handler, home: RunLoop?) {
        self.due = due
        self.handler = handler
        owner = home
        isConfined = home != nil
        if date != due { needDetails().date = date }
        if tolerance > 0 { self.tolerance = tolerance }
    }

    var isValid: Bool { handler != nil }

    /// The loop that it is in.
    var loop: RunLoop? { group == Group.none ? nil : owner }

    /// The loop whose thread the closure belongs to.
    var home: RunLoop? { isConfined ? details?.home ?? owner : nil }

    /// What ``Timer/fireDate`` answers: the date as it was given, even if that was in the past.
    var date: Int64 { details?.date ?? due }

    var tolerance: Int64 {
        get { details?.tolerance ?? 0 }
        set { needDetails().tolerance = newValue }
    }

    mutating func setDate(_ date: Int64, due: Int64) {
        self.due = due
        if date != due { needDetails().date = date } else { details?.date = nil }
    }

    private mutating func needDetails() -> Timer.Details {
        if let details { return details }
        let details = Timer.Details()
        self.details = details
        return details
    }

    /// Ends the timer.
    mutating func retire() -> Timer.Remains {
        guard let handler = handler.take() else { return Timer.Remains(nil) }
        // Taken, not copied: counting references is a good part of what a timer costs.
        guard let owner = owner.take() else { return Timer.Remains(handler) }
        let isIn = group != Group.none
        let isHere = owner.isCurrent
        if isIn { leave(owner, isHere) }
        if isHere, details == nil { return Timer.Remains(handler) }
        return Timer.Remains(
            handler, home: isConfined ? details?.home ?? owner : nil, loop: isIn && !isHere ? owner : nil)
    }

    // MARK: Modes

    /// The only group that it is filed in; nil if there are several, or none.
    var soleGroup: RunLoop.Mode? { group >= 0 ? RunLoop.Mode(group) : nil }

    var membership: Membership {
        get {
            if let soleGroup { return Membership(soleGroup) }
            return group == Group.several ? details?.membership ?? Membership() : Membership()
        }
        set {
            if newValue.isEmpty {
                group = Group.none
            } else if let only = newValue.groups.single, newValue == Membership(only) {
                group = only.index
            } else {
                group = Group.several
                needDetails().membership = newValue
            }
        }
    }

    /// Adds it to a mode; false if it may not join that loop.
    mutating func add(_ mode: RunLoop.Mode, of loop: RunLoop) -> Bool {
        guard isValid, group == Group.none || owner === loop else { return false }
        if owner !== loop {
            if let owner { needDetails().home = owner }
            owner = loop
        }
        if group == Group.none {
            group = mode.index
        } else {
            membership.add(mode, common: loop.commonModes)
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
        guard let loop else { return }
        leave(loop, loop.isCurrent)
        if !isConfined {
            owner = nil
        } else if let home = details?.home {
            owner = home
            details?.home = nil
        }
    }

    private mutating func leave(_ loop: RunLoop, _ isHere: Bool) {
        group = Group.none
        if isHere { loop.core.unfile(&self) } else { strand(loop.identity) }
    }

    // MARK: Places

    /// Where it is queued.
    var place: Timer.Place? {
        get { queued.slot < 0 ? nil : queued }
        set { queued = newValue ?? .none }
    }

    /// Where it is queued, if that is one place, and the right one.
    var solePlace: Timer.Place? {
        guard queued.slot >= 0, queued.group.index == group else { return nil }
        return details == nil || (!hasMorePlaces && !hasStrays) ? queued : nil
    }

    var hasMorePlaces: Bool { details?.morePlaces.isEmpty == false }

    var morePlaces: [Timer.Place] {
        get { details?.morePlaces ?? [] }
        set { if details != nil || !newValue.isEmpty { needDetails().morePlaces = newValue } }
    }

    private mutating func strand(_ home: LoopIdentity) {
        guard let place else { return }
        needDetails().strays += (morePlaces + [place]).map { (home, $0) }
        self.place = nil
        morePlaces = []
    }

    private var hasStrays: Bool { details?.strays.isEmpty == false }

    func hasStrays(of home: LoopIdentity) -> Bool {
        hasStrays && details?.strays.contains { $0.home == home } == true
    }

    mutating func takeStrays(of home: LoopIdentity) -> [Timer.Place] {
        guard let details else { return [] }
        let places = details.strays.filter { $0.home == home }.map(\.place)
        details.strays.removeAll { $0.home == home }
        return places
    }
}
