/// The watches of one poller that wait to be served, first come first.
///
/// The queue runs through the watches themselves, both ways: a running loop does not allocate, and a watch
/// that ends leaves at once. Serving goes by rounds: what is recorded during one is served in the next, after
/// the kernel has been asked again, so that nothing that keeps itself ready keeps others waiting.
@safe
struct ReadyQueue {
    private var first: Watch?
    private var last: Watch?
    private var round: UInt32 = 0

    var isEmpty: Bool { first == nil }

    mutating func append(_ watch: Watch) {
        guard unsafe !watch.contents.pointee.isQueued else { return }
        unsafe watch.contents.pointee.isQueued = true
        unsafe watch.contents.pointee.round = round
        unsafe watch.contents.pointee.previous = last
        if let last { unsafe last.contents.pointee.next = watch } else { first = watch }
        last = watch
    }

    mutating func remove(_ watch: Watch) {
        guard unsafe watch.contents.pointee.isQueued else { return }
        let (previous, next) = unsafe (watch.contents.pointee.previous, watch.contents.pointee.next)
        if let previous { unsafe previous.contents.pointee.next = next } else { first = next }
        if let next { unsafe next.contents.pointee.previous = previous } else { last = previous }
        unsafe watch.contents.pointee.previous = nil
        unsafe watch.contents.pointee.next = nil
        unsafe watch.contents.pointee.isQueued = false
    }

    /// Begins a round of serving; what is recorded from now on is not part of it.
    mutating func beginRound() -> UInt32 {
        round &+= 1
        return round
    }

    /// Takes the first watch that was recorded before `round` began.
    mutating func takeFirst(before round: UInt32) -> Watch? {
        guard let watch = first, holds(before: round) else { return nil }
        remove(watch)
        return watch
    }

    /// Whether a watch waits that was recorded before `round` began.
    func holds(before round: UInt32) -> Bool {
        guard let first else { return false }
        // Rounds wrap around after four thousand million: the difference is what tells.
        return unsafe Int32(bitPattern: first.contents.pointee.round &- round) < 0
    }

    /// Drops from the front what has been served, or withdrawn, in another way; true if anything is left.
    @inline(always)
    mutating func hasUnserved() -> Bool {
        while let watch = first, unsafe watch.contents.pointee.readiness.isEmpty { remove(watch) }
        return first != nil
    }

    /// As ``hasUnserved()``, where the kernel is not asked for anything new: what comes first is still so.
    mutating func hasConfirmed() -> Bool {
        while hasUnserved(), let watch = first {
            watch.confirm()
            guard unsafe !watch.contents.pointee.readiness.isEmpty else { continue }
            unsafe watch.contents.pointee.round = round
            return true
        }
        return false
    }

    /// Whether the kernel has been asked, and something served, since `watch` was recorded or confirmed.
    @inline(__always)
    func isLate(_ watch: Watch) -> Bool { unsafe watch.contents.pointee.round &+ 1 != round }

    /// How many wait to be served: for a dump.
    var count: Int {
        var count = 0
        var next = first
        while let watch = next {
            count += 1
            next = unsafe watch.contents.pointee.next
        }
        return count
    }
}
