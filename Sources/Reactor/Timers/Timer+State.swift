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
        /// The loop that it is in. That is held: a loop lets go of its timers before it ends, and whoever adds one
        /// from another thread holds the loop until the timer is in its queues, or out of it again.
        private var owner: HeldLoop?
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

        /// The closure goes home also when the timer's last owner lets go. The timer is in no loop then: that would
        /// hold it.
        deinit {
            guard isValid, let home = details?.home else { return }
            Timer.Remains(handler, home: home).letGo()
        }
    }
}

extension Timer.State {
    init(due: Int64, date: Int64, tolerance: Int64, handler: consuming Timer.Handler, home: RunLoop?) {
        self.due = due
        self.handler = consume handler
        isConfined = home != nil
        if let home { needDetails().home = home }
        if date != due { needDetails().date = date }
        if tolerance > 0 { self.tolerance = tolerance }
    }

    /// In a loop from the start, which is the closure's home.
    init(
        due: Int64, tolerance: Int64, handler: consuming Timer.Handler, place: Timer.Place, in loop: HeldLoop
    ) {
        self.due = due
        self.handler = consume handler
        isConfined = true
        owner = loop
        group = place.group.index
        queued = place
        if tolerance > 0 { self.tolerance = tolerance }
    }

    var isValid: Bool { handler != nil }

    /// The loop that it is in.
    var loop: RunLoop? { owner?.loop }

    func isIn(_ loop: LoopIdentity) -> Bool { owner?.identity == loop }

    /// The closure, to be called on this thread: it must be one that it may be called on.
    func handlerToCall() -> Timer.Handler? {
        if isConfined, let home = details?.home?.identity ?? owner?.identity {
            precondition(home.isCurrent, "fired off its run loop's thread")
        }
        return switch handler {
        case .some(let handler): handler.copy
        case .none: nil
        }
    }

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
        guard let handler = handler.take() else { return Timer.Remains() }
        guard let owner, !leaveQueues(of: owner) else { return Timer.Remains(handler, home: details?.home) }
        return Timer.Remains(handler, home: isConfined ? details?.home ?? owner.loop : nil, loop: owner.loop)
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
            if let only = newValue.single {
                group = only.index
            } else {
                group = Group.several
                needDetails().membership = newValue
            }
        }
    }

    /// Adds it to a mode; false if it may not join that loop.
    mutating func add(_ mode: RunLoop.Mode, of loop: RunLoop) -> Bool {
        guard isValid else { return false }
        if let current = self.loop {
            guard current === loop else { return false }
            membership.add(mode, common: loop.commonModes)
        } else {
            precondition(
                details?.home == nil || details?.home === loop,
                "a timer whose closure belongs to a thread joins no other thread's loop")
            owner = HeldLoop(loop)
            group = mode.index
            if let details, details.home === loop { details.home = nil }
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
        guard let owner else { return }
        if isConfined, details?.home == nil { needDetails().home = owner.loop }
        leaveQueues(of: owner)
    }

    /// As ``leave()``; whether the loop need not be told.
    @discardableResult
    private mutating func leaveQueues(of loop: HeldLoop) -> Bool {
        owner = nil
        group = Group.none
        let isHere = loop.isCurrent
        if isHere { takePlaces(from: loop) } else { strand(loop.identity) }
        return isHere
    }

    /// Takes it out of every queue. The caller holds the timer: what it captured is not let go of here, under its
    /// lock.
    private mutating func takePlaces(from loop: HeldLoop) {
        guard let place else { return }
        loop.state(of: place.group).timers.remove(place.slot)
        self.place = nil
        guard hasMorePlaces else { return }
        for place in morePlaces { loop.state(of: place.group).timers.remove(place.slot) }
        morePlaces = []
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
