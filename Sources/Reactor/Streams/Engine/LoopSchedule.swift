/// What a stream has on the run loop that it is scheduled on, and what the loop has done for it. Pure; part of
/// ``StreamMachine``.
struct LoopSchedule {
    let loop: LoopIdentity
    private(set) var membership = Membership()
    /// Whether the loop has the kernel watch the descriptor.
    private(set) var isWatched = false
    /// Whether the loop watches nothing until the delegate reads or writes: the kernel has repeated its report.
    var isDisarmed = false
    /// Whether the loop serves the stream in the modes of `membership`.
    private(set) var isUpToDate = false
    /// Whether an update has been requested from the loop's thread, which has not made it yet.
    private var isUpdateRequested = false

    /// Whether the loop has nothing to do for the stream before the next event: it watches the descriptor, in the right modes.
    var isSettled: Bool { isUpToDate && isWatched && !isDisarmed }

    init(loop: LoopIdentity) { self.loop = loop }

    /// What the loop has to do for the stream.
    struct Update {
        let membership: Membership
        /// Whether the kernel is to watch the descriptor.
        let isWatched: Bool
        /// Whether to signal the source, for an event that the kernel will not report.
        let isSignalled: Bool
    }

    mutating func change(_ body: (inout Membership) -> Void) {
        body(&membership)
        isUpToDate = false
    }

    mutating func disarm() { (isDisarmed, isWatched) = (true, false) }

    mutating func noteUnwatched() { isWatched = false }

    /// Returns whether to ask the loop: false if an earlier request is pending.
    mutating func requestUpdate() -> Bool {
        defer { isUpdateRequested = true }
        return !isUpdateRequested
    }

    /// Takes what the loop has to do.
    mutating func update(isWatched: Bool, isSignalled: Bool) -> Update {
        (self.isWatched, isUpdateRequested, isUpToDate) = (isWatched, false, true)
        return Update(membership: membership, isWatched: isWatched, isSignalled: isSignalled)
    }
}
