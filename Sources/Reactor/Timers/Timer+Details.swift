extension Timer {
    /// A place in the queue of one group of modes of the timer's loop.
    struct Place {
        let group: RunLoop.Mode
        let slot: TimerQueue<Timer>.Slot

        static var none: Place { Place(group: RunLoop.Mode(-1), slot: -1) }
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
        /// The closure's home, unless that is the loop that the timer is in.
        var home: RunLoop?
    }
}
