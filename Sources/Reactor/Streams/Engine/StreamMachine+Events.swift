/// The reports of bytes and room that a machine receives, and the events that it delivers.
extension StreamMachine {
    // MARK: Readiness

    /// Something else reports that bytes can be moved from now on. What was reported before does not count.
    mutating func changeReadinessSource(_ readinessSource: ReadinessSource) {
        guard isOpen, self.readinessSource != readinessSource,
            self.readinessSource != .unannounced || isAnnounced
        else { return }
        self.readinessSource = readinessSource
        isUnacknowledged = false
        pendingBits &= ~transferBits
        room = .assumed
    }

    /// Whether ``Stream/Event/openCompleted`` has been delivered or is being delivered.
    private var isAnnounced: Bool {
        delivery != .held && !pending.contains(.openCompleted)
    }

    /// Whether the loop or the queue has to report a pass.
    var mustReportPass: Bool { delivery == .held && awaitsPass }

    /// Whether the backend may report bytes or space now, and not before.
    var mustChangeReadinessSource: Bool { readinessSource == .unannounced && isOpen && isAnnounced }

    /// The kernel reports that bytes can be moved, and does so in every poll until they have been. Ending the
    /// registration and making it again takes two system calls, so it stays until the kernel repeats a
    /// report.
    @inline(__always)
    private mutating func note(_ report: Report) -> Action {
        guard isOpen else { return .none }
        switch report {
        case .none: return .none
        case .made where readinessSource == .unannounced:
            // The opening comes first. While the delegate is missing, it cannot be delivered, and the repeated report would
            // keep the loop awake.
            return delegateState == .missing ? disarm() : .none
        case .made(let poll):
            // Room is checked before it is delivered. The kernel doesn't report the room of a write buffer.
            if readinessSource == .kernelWhenFull {
                guard room == .full else { return .none }
                room = .assumed
            } else if readinessSource == .kernelThroughBackend || !isFresh(poll) {
                return .confirm
            }
        case .confirmed: break
        }
        let isKnown = delegateState == .missing && pendingBits & transferBits != 0
        let isNews = delivery == .idle && !isUnacknowledged && !isKnown
        insertTransfer()
        return isNews ? .none : disarm()
    }

    private mutating func disarm() -> Action {
        loopSchedule?.disarm()
        return .disarm
    }

    /// Whether a report that the loop has received in `poll` is about bytes that no transfer can have moved.
    @inline(__always)
    private func isFresh(_ poll: Poll) -> Bool { lastTransfer == .none || poll.follows(lastTransfer) }

    /// The backend's answer to the question what the next read or write can expect.
    mutating func note(_ availability: Availability) {
        switch availability {
        case .waiting:
            if readinessSource == .kernelWhenFull, room.isLikely { insertTransfer() }
        case .ready:
            guard readinessSource != .unannounced else { return }
            insertTransfer()
            room = .found
        case .atEnd: reachEnd()
        case .failed(let error): fail(error)
        }
    }

    /// The engine has checked for room, because it was told to before an event is delivered.
    mutating func checked(_ room: Room) -> Action {
        self.room = room
        if room != .found { pendingBits &= ~transferBits }
        return canDeliver ? deliverPending() : next
    }

    /// Whether to ask the backend what the next read or write can expect: ``note(_:)``.
    var mustAskBackend: Bool {
        @inline(__always) get {
            mayDeliver && isOpen && (readinessSource.asksBackend || room == .awaited)
        }
    }

    // MARK: Delivery

    /// Whether there is an event to deliver.
    var canDeliver: Bool { delivery == .idle && pendingBits != 0 }

    /// Whether the loop has to be woken to deliver an event.
    var mustDeliver: Bool { canDeliver && delegateState != .missing }

    /// A loop serves the stream, because the kernel reports it ready or because the engine has signalled its
    /// source.
    ///
    /// - Parameter isInRunningMode: Whether a membership includes the loop's running mode. Called only if the loop is
    ///   not up to date.
    @inline(__always)
    mutating func serve(
        on loop: LoopIdentity, _ report: Report, isInRunningMode: (Membership) -> Bool
    ) -> Action {
        // A loop that the stream has left may still hold a report.
        guard isScheduled(on: loop) else { return .none }
        guard case .made(let poll) = report, isFresh(poll), isRegular else {
            return serveSlowly(report, isInRunningMode)
        }
        (delivery, isUnacknowledged, batchBits) = (.underway, true, 0)
        return .deliver(event)
    }

    /// Whether nothing is pending or left to do, and the kernel alone reports more: then a report is delivered at once.
    @inline(__always)
    private var isRegular: Bool {
        delivery == .idle && status == .open && readinessSource == .kernel && room == .assumed
            && delegateState == .expected && pendingBits == 0 && !isUnacknowledged && !isOnQueue
            && loopSchedule?.isSettled == true
    }

    @inline(never)
    private mutating func serveSlowly(_ report: Report, _ isInRunningMode: (Membership) -> Bool) -> Action {
        let action = note(report)
        guard action == .none else { return action }
        guard canDeliver else { return delivery == .held && !isOnQueue ? .passCompleted : .none }
        guard loopSchedule!.isUpToDate || isInRunningMode(loopSchedule!.membership) else { return .none }
        return mustCheckRoom ? .checkRoom : deliverPending()
    }

    @inline(__always)
    private mutating func deliverPending() -> Action {
        delivery = isOnQueue ? .enqueued : .underway
        return isOnQueue ? .enqueue : beginBatch()
    }

    /// The callback on the queue starts. It has nothing to do if the stream has left the queue since.
    mutating func beginCallback() -> Action {
        guard delivery == .enqueued else { return .none }
        delivery = .underway
        return beginBatch()
    }

    /// Events that become pending during the callbacks wait for the next pass, so that other streams are
    /// served too.
    @inline(__always)
    private mutating func beginBatch() -> Action {
        batchBits = pendingBits
        if let event = takeNext() { return .deliver(event) }
        delivery = .idle
        return .none
    }

    /// An event has been delivered, or has found no delegate and waits for one.
    ///
    /// - Parameter mayContinue: Whether the rest of the batch may be delivered here.
    mutating func delivered(
        _ event: Stream.Event, toDelegate isDelivered: Bool, mayContinue: Bool
    ) -> Action {
        if isDelivered {
            if mayContinue, let next = takeNext() { return .deliver(next) }
            endDelivery()
        } else {
            delivery = .idle
            delegateState = delegateState == .replaced ? .expected : .missing
            restore(event)
        }
        return .none
    }

    /// Ends the delivery of an event, if the batch has no more.
    @inline(__always)
    mutating func endsLastDelivery() -> Bool {
        guard batchBits & pendingBits == 0 else { return false }
        endDelivery()
        return true
    }

    /// The last event of a batch has been delivered.
    private mutating func endDelivery() { (delivery, delegateState) = (.idle, .expected) }

    @inline(__always)
    private mutating func takeNext() -> Stream.Event? {
        if delegateState == .replaced { delegateState = .expected }
        // Room that was used meanwhile is checked again before it is delivered.
        let wanted = batchBits & pendingBits & (mustCheckRoom ? ~transferBits : .max)
        guard wanted != 0 else { return nil }
        let next = wanted & (~wanted &+ 1)
        pendingBits &= ~next
        batchBits &= ~next
        if next == transferBits { isUnacknowledged = true }
        return Stream.Event(rawValue: UInt(next))
    }

    /// Makes `event` pending again, unless a transfer, an error or the closing has overtaken it.
    private mutating func restore(_ event: Stream.Event) {
        guard !isClosed, status != .error || event == .errorOccurred else { return }
        if event == self.event {
            guard isOpen, isUnacknowledged else { return }
            isUnacknowledged = false
        }
        insert(event)
    }

    mutating func insert(_ event: Stream.Event) {
        pendingBits |= UInt8(truncatingIfNeeded: event.rawValue)
    }

    @inline(__always)
    mutating func insertTransfer() {
        if isOpen, !isUnacknowledged { pendingBits |= transferBits }
    }

    var mustCheckRoom: Bool {
        readinessSource == .kernelWhenFull && room != .found && pendingBits & transferBits != 0
    }

    // MARK: The delegate

    /// The stream has a new delegate, which receives again what its predecessor has not acknowledged.
    ///
    /// - Parameter isOther: Whether it is another object than before. If not, it only ends the lack of a
    ///   delegate.
    /// - Returns: Whether there may be something to deliver now.
    mutating func setDelegate(isOther: Bool) -> Bool {
        guard isOther || delegateState == .missing else { return false }
        delegateState = .replaced
        isUnacknowledged = false
        return true
    }

    /// The stream gets a delegate in place of the tasks that used it: the end or the error that they were told
    /// of is delivered to it too.
    mutating func repeatEnding() {
        switch status {
        case .atEnd where !isShutDown: insert(.endEncountered)
        case .error where !isClosed: insert(.errorOccurred)
        default: break
        }
    }

    /// Whether a loop or a queue can deliver an event now, if there is one.
    @inline(__always)
    var mayDeliver: Bool { delivery == .idle && isScheduled }

    /// Whether the delegate is being called, or a callback on the queue will call it.
    var isCallingDelegate: Bool { delivery == .underway || delivery == .enqueued }

    /// Whether the delegate, if there is one, has read or written since the last transfer event.
    var isAcknowledged: Bool { delegateState != .missing && !isUnacknowledged }
}
