import SystemPackage

/// The loop that the stream is scheduled on.
extension StreamMachine {
    var isScheduled: Bool { loopSchedule != nil }

    @inline(__always)
    func isScheduled(on loop: LoopIdentity) -> Bool { loopSchedule?.loop == loop }

    func isScheduled(on loop: LoopIdentity, _ isInRunningMode: (Membership) -> Bool) -> Bool {
        isScheduled(on: loop) && isInRunningMode(loopSchedule!.membership)
    }

    /// The stream is scheduled in a mode of a loop; one that is on another loop moves, with its pending events. On the new
    /// loop an unacknowledged event is delivered again.
    ///
    /// - Returns: Whether the stream is scheduled: false once it is closed.
    mutating func schedule(on loop: LoopIdentity, _ mode: RunLoop.Mode, common: ModeSet) -> Bool {
        guard !isClosed else { return false }
        wasScheduled = true
        // A subclass may have its own kind of delegate by now.
        if delegateState == .missing { delegateState = .expected }
        if !isScheduled(on: loop) {
            loopSchedule = LoopSchedule(loop: loop)
            isUnacknowledged = false
        }
        loopSchedule?.change { $0.add(mode, common: common) }
        return true
    }

    /// The stream is removed from a mode of a loop.
    mutating func unschedule(from loop: LoopIdentity, _ mode: RunLoop.Mode, common: ModeSet) -> Removal {
        guard isScheduled(on: loop) else { return .none }
        loopSchedule?.change { $0.remove(mode, common: common) }
        guard loopSchedule!.membership.isEmpty else { return .changed }
        loopSchedule = nil
        return .left
    }

    /// The result of leaving a mode.
    enum Removal {
        case none
        /// The stream is still scheduled in another mode.
        case changed
        /// The stream is not scheduled any more.
        case left
    }

    /// The stream is removed from its loop and from its queue. A callback that has not started there delays no other
    /// delivery.
    mutating func detach() {
        isOnQueue = false
        if delivery == .enqueued { delivery = .idle }
        loopSchedule = nil
    }

    /// Events are delivered on a queue from now on.
    mutating func joinQueue() { isOnQueue = true }

    // `mutating`, though they change nothing: a copy of the machine would cost more than the answer.

    /// Whether the engine may have to ask the backend, or do something, after a change.
    var mayHaveNext: Bool {
        @inline(__always) mutating get { delivery == .idle && (mustDeliver || mustAskBackend || isBehind) }
    }

    /// Whether the loop, which is up to date, has to serve the stream in its next pass.
    var mustSignal: Bool {
        @inline(__always) mutating get { (mustDeliver || mustReportPass) && isScheduled && !isBehind }
    }

    /// The engine's next step after a change.
    var next: Action {
        mutating get {
            guard mayDeliver else { return .none }
            return isBehind ? .update : mustDeliver ? .signal : .none
        }
    }

    /// Whether to update the loop, because it is behind or has an event to deliver, and whether to enqueue a callback, or a
    /// pass for held events. While the delegate is being called only a change of modes is applied; the engine asks again after
    /// that.
    mutating func takeUpdate() -> (isForLoop: Bool, isForQueue: Bool) {
        if delivery != .idle {
            let isLate = loopSchedule?.isUpToDate == false
            return (isLate || mustReportPass && isScheduled && !isOnQueue, mustReportPass && isOnQueue)
        }
        // The loop checks for room before the queue delivers it.
        let isForQueue = isOnQueue && mustDeliver && !mustCheckRoom
        let isForLoop = isScheduled && mustDeliver && !isForQueue || isBehind
        if isForQueue { delivery = .enqueued }
        return (isForLoop, isForQueue)
    }

    /// Another thread's loop is to be updated. Returns whether to ask it: false if an earlier request is
    /// pending.
    mutating func requestUpdate() -> Bool { loopSchedule?.requestUpdate() ?? false }

    /// Takes what `loop` has to do for the stream; nil if the stream is not scheduled there.
    mutating func update(_ loop: LoopIdentity) -> LoopSchedule.Update? {
        guard var schedule = loopSchedule, schedule.loop == loop else { return nil }
        if isAcknowledged { schedule.isDisarmed = false }
        let isWatched = needsWatch(isDisarmed: schedule.isDisarmed)
        defer { loopSchedule = schedule }
        return schedule.update(isWatched: isWatched, isSignalled: mustDeliver || mustReportPass)
    }

    /// The kernel refuses to watch the descriptor for `loop`.
    mutating func failWatching(on loop: LoopIdentity, _ error: any Error) {
        if isScheduled(on: loop) { loopSchedule?.noteUnwatched() }
        fail(error)
    }

    /// Whether to update the loop's registration now. An update that the end makes superfluous is left out.
    var isBehind: Bool {
        @inline(__always) mutating get {
            guard let isDisarmed = loopSchedule?.isDisarmed else { return false }
            if !loopSchedule!.isUpToDate { return true }
            return needsWatch(isDisarmed: isDisarmed) != loopSchedule!.isWatched && !isEnding
        }
    }

    /// Whether the loop's next pass delivers the end or an error. Clients close the stream then, which ends the registration.
    private var isEnding: Bool {
        (status == .atEnd || status == .error) && mustDeliver && !isOnQueue
    }

    /// Whether the kernel has to watch the descriptor.
    ///
    /// - Parameter isDisarmed: Whether the loop has performed ``Action/disarm``.
    @inline(__always)
    func needsWatch(isDisarmed: Bool) -> Bool {
        guard isOpen else { return false }
        switch readinessSource {
        case .backend: return false
        case .unannounced where isOnQueue || interest == .writable: return false
        case .kernel, .kernelThroughBackend, .unannounced: return !isDisarmed || isAcknowledged
        case .kernelWhenFull: return room == .full
        }
    }
}

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

    /// The loop's work for the stream.
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
