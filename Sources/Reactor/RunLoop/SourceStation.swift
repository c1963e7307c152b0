extension RunLoop.Source {
    /// What a source is in one loop.
    struct Station {
        let loop: RunLoop
        var membership = Membership()
        /// The modes that the callbacks have been told of.
        var told = ModeSet()
        /// Where the loop's thread has filed it.
        private var places = Places()
        /// Where its signal waits: in the same groups, or nowhere.
        private var signalPlaces = Places()
        /// Whether the loop's inbox holds a note of a signal. It holds one at most.
        var isNoted = false
        /// Whether the callback is under way on the loop's stack. It outlasts the membership: a source that comes back
        /// meanwhile is not called inside itself.
        var isPerforming = false

        init(loop: RunLoop) { self.loop = loop }

        var isFiled: Bool { !places.isEmpty }

        /// Whether nothing is left of it. Another thread empties the membership before the loop's thread unfiles the source.
        var isOver: Bool { membership.isEmpty && places.isEmpty && !isNoted && !isPerforming }
    }
}

// On the loop's thread, with the source's lock held: nothing here calls user code.

extension RunLoop.Source.Station {
    /// Files `source` in the groups that it belongs to, and takes it out of the others.
    mutating func file(_ source: RunLoop.Source, in core: RunLoop.Core) {
        unfileSignal(in: core)
        places.follow(membership.groups(common: core.commonModes)) { place in
            core.state(of: place.group).sources.remove(place.slot)
        } enter: { mode in
            core.state(of: mode).sources.insert(source)
        }
    }

    /// Has `signal` wait wherever the source is filed, and no other; not while it is in the inbox, which brings it in
    /// its turn, nor during the callback.
    mutating func fileSignal(_ signal: Signal, of source: RunLoop.Source, in core: RunLoop.Core) {
        unfileSignal(in: core)
        guard signal != .none, !isNoted, !isPerforming else { return }
        signalPlaces.follow(places.groups) { _ in
        } enter: { mode in
            core.state(of: mode).signals.insert(source, signal)
        }
    }

    private mutating func unfileSignal(in core: RunLoop.Core) {
        signalPlaces.leaveAll { place in core.state(of: place.group).signals.remove(place.slot) }
    }
}
