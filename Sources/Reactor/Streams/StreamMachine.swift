import SystemPackage

/// Decides what happens to a stream: its status, which event is delivered when and where, and what the engine
/// has to find out first.
///
/// Pure: no descriptor, loop, lock or clock. Every mutating method is an input; the ``Action`` that it
/// returns is for the engine to perform. An event is pending until it is delivered. A delivered transfer
/// event (bytes or space) stays unacknowledged until the next read or write.
struct StreamMachine {
    /// What the engine does next.
    enum Action: Equatable {
        case none
        /// Call the delegate, then report ``delivered(_:toDelegate:mayContinue:)``.
        case deliver(Stream.Event)
        /// Put a callback on the stream's queue, which starts with ``beginCallback()``.
        case enqueue
        /// Stop watching the descriptor until the delegate reads or writes: the kernel has repeated its report.
        case disarm
        /// Ask the backend about a report of the kernel, which may be older than the last transfer. The
        /// result is ignored if more transfers have been made by then.
        case askKernel(since: UInt64)
        /// Check for room before calling the delegate for it. The result is ignored as in
        /// ``askKernel(since:)``.
        case checkRoom(since: UInt64)
        /// Ask the backend whether bytes can be moved.
        case askBackend
        /// Have the loop, which is up to date, serve the stream in its next pass.
        case signal
        /// Do what ``takeUpdate()`` says.
        case update
        /// Tell the backend that a turn has passed since ``hold(awaitsTurn:)``.
        case turnPassed
    }

    /// Whether a read or a write may start.
    enum Admission: Equatable {
        case begun
        /// The stream has to open first.
        case opening
        /// The call returns this value.
        case refused(Int)
    }

    enum Delivery {
        case idle
        /// The events of a connection wait until it has announced that it is open, or has failed.
        case held
        /// A callback is on the queue and has not started.
        case enqueued
        /// The delegate is being called. Neither a nested run of the loop nor the loop or queue that the stream
        /// has moved to calls it meanwhile.
        case underway
    }

    enum DelegateState {
        /// There is a delegate, as far as is known: only a delivery finds out.
        case expected
        /// The last event found no delegate. It waits for one, and so do later events.
        case missing
        /// A delegate was set while the last event was looking for one.
        case replaced
    }

    // Small fields, kept together: every connection has two machines.

    private(set) var error: (any Error)?
    /// How many reads and writes have finished.
    private(set) var transfers: UInt64 = 0
    private(set) var status = Stream.Status.notOpen
    private(set) var readinessSource = ReadinessSource.backend
    private(set) var room = Room.assumed
    private(set) var delivery = Delivery.idle
    private(set) var delegateState = DelegateState.expected
    private(set) var isClosed = false
    private(set) var isHandedOver = false
    /// Whether the client has ended the output itself.
    private(set) var isShutDown = false
    private(set) var isUnacknowledged = false
    private(set) var wasScheduled = false
    private var awaitsTurn = false
    /// Whether events are delivered on a queue. The loop is the streams thread's then.
    private(set) var isOnQueue = false
    /// Whether the loop may hold a report of the kernel that is older than the last transfer.
    private(set) var mayReportBeStale = false
    /// The last poll of the loop, while that calls the delegate: it cannot hold a report that is older than a
    /// read or a write that begins before the next one.
    private var pollOfDelivery = Poll.none
    private let transferBits: UInt8
    private(set) var pendingBits: UInt8 = 0
    private(set) var batchBits: UInt8 = 0
    /// The loop that the stream is scheduled on; nil once the stream is closed.
    private(set) var attachment: Attachment?

    /// - Parameter event: The event to deliver when bytes can be moved.
    init(_ event: Stream.Event) { transferBits = UInt8(truncatingIfNeeded: event.rawValue) }

    /// The event that is delivered when bytes can be moved.
    var event: Stream.Event { Stream.Event(rawValue: UInt(transferBits)) }

    /// What the kernel watches the descriptor for.
    var interest: Readiness { event == .hasBytesAvailable ? .readable : .writable }

    var pending: Stream.Event { Stream.Event(rawValue: UInt(pendingBits)) }

    /// Whether bytes can be moved.
    var isOpen: Bool { status == .open || status == .reading || status == .writing }

    // MARK: Opening and closing

    /// The client opens the stream. Returns whether there is something to open.
    mutating func open() -> Bool {
        guard status == .notOpen else { return false }
        status = .opening
        return true
    }

    /// - Parameter isAtEnd: Whether there is nothing to move from the start.
    mutating func opened(_ readinessSource: ReadinessSource, isAtEnd: Bool) {
        guard status == .opening else { return }
        self.readinessSource = delivery == .held ? .unannounced : readinessSource
        status = .open
        insert(.openCompleted)
        if isAtEnd { reachEnd() }
    }

    /// The stream's events wait for ``release()``. The stream can be used meanwhile.
    ///
    /// - Parameter awaitsTurn: Whether the loop or the queue is to report its next turn.
    mutating func hold(awaitsTurn: Bool) { (delivery, self.awaitsTurn) = (.held, awaitsTurn) }

    /// Ends what ``hold(awaitsTurn:)`` began.
    mutating func release() { if delivery == .held { delivery = .idle } }

    /// The client closes the stream. Returns whether there is something to release. An error outlives the
    /// closing.
    mutating func close() -> Bool {
        guard status != .notOpen, !isClosed else { return false }
        isClosed = true
        pendingBits = 0
        isUnacknowledged = false
        if status != .error { status = .closed }
        return true
    }

    /// Fails the stream unless it is closed. The error is delivered once, as the last event.
    mutating func fail(_ error: any Error) {
        if !isClosed { loseBytes(error) }
    }

    /// Accepted bytes are lost. That is an error of a closed stream too, which delivers nothing.
    mutating func loseBytes(_ error: any Error) {
        guard status != .error else { return }
        pendingBits = 0
        isUnacknowledged = false
        status = .error
        self.error = error
        if !isClosed { insert(.errorOccurred) }
    }

    /// No more bytes, or no more room, will come. Delivered once; only an error may follow.
    mutating func reachEnd() {
        guard isOpen else { return }
        status = .atEnd
        pendingBits &= ~transferBits
        insert(.endEncountered)
    }

    /// The client has ended the output itself, so no end is delivered.
    mutating func shutDown() {
        guard isOpen else { return }
        isShutDown = true
        status = .atEnd
        pendingBits &= ~transferBits
    }

    /// A hand-off takes the stream. Returns false if another one owns it.
    mutating func handOver() -> Bool {
        defer { isHandedOver = true }
        return !isHandedOver || isClosed
    }

    // MARK: Transfers

    /// A read or a write begins. It acknowledges the transfer event, delivered or pending.
    ///
    /// - Parameter poll: The last one of the calling thread.
    @inline(__always)
    mutating func begin(count: Int, after poll: Poll) -> Admission {
        guard isOpen else { return refusal }
        guard count > 0 else { return .refused(0) }
        if status == .open { status = transferBits == 2 ? .reading : .writing }
        pendingBits &= ~transferBits
        isUnacknowledged = false
        if poll != pollOfDelivery { mayReportBeStale = true }
        return .begun
    }

    private var refusal: Admission {
        switch status {
        case .opening: .opening
        case .atEnd: .refused(0)
        default: .refused(-1)
        }
    }

    /// A read or a write has finished. A transfer event that became pending meanwhile may be about the bytes
    /// that it moved, so it is dropped.
    @inline(__always)
    mutating func finishTransfer(_ transfer: Transfer) {
        if status == .reading || status == .writing { status = .open }
        pendingBits &= ~transferBits
        transfers += 1
        room = transfer.room
        if transfer.isAtEnd { reachEnd() }
        if readinessSource == .kernelWhenFull, room == .assumed { insertTransfer() }
    }

    /// A read has found nothing: the transfer event was premature, and the next one is delivered again.
    mutating func acknowledge() { isUnacknowledged = false }

    // MARK: Putting bytes back

    /// How a stream had ended before bytes were put back.
    enum Ending {
        case none, atEnd
        case failed(any Error)

        var isAtEnd: Bool { if case .atEnd = self { true } else { false } }
    }

    /// Opens a stream again that has ended, because there are bytes to read before its end. Nil if it is not
    /// open and has not ended.
    mutating func reopen() -> Ending? {
        switch status {
        case .open, .reading, .writing: return Ending.none
        case .atEnd:
            status = .open
            pendingBits &= ~UInt8(Stream.Event.endEncountered.rawValue)
            return .atEnd
        case .error where !isClosed:
            defer { (status, error) = (.open, nil) }
            pendingBits &= ~UInt8(Stream.Event.errorOccurred.rawValue)
            return error.map { .failed($0) } ?? Ending.none
        default: return nil
        }
    }

    /// Bytes were put back. The kernel does not report them.
    mutating func putBack() {
        readinessSource = .backend
        isUnacknowledged = false
        insertTransfer()
    }

    /// The bytes that were put back have been read.
    mutating func endPutBack(_ readinessSource: ReadinessSource) { self.readinessSource = readinessSource }

    // MARK: Readiness

    /// Something else reports that bytes can be moved from now on. What was reported before does not count.
    mutating func changeReadinessSource(_ readinessSource: ReadinessSource) {
        guard isOpen, self.readinessSource != readinessSource,
            self.readinessSource != .unannounced || isAnnounced
        else { return }
        self.readinessSource = readinessSource
        isUnacknowledged = false
        pendingBits &= ~transferBits
        transfers += 1
        room = .assumed
    }

    /// Whether ``Stream/Event/openCompleted`` has been delivered or is being delivered.
    private var isAnnounced: Bool {
        delivery != .held && !pending.contains(.openCompleted)
    }

    /// Whether the loop or the queue has to report a turn.
    var mustTurn: Bool { delivery == .held && awaitsTurn }

    /// Whether the backend may report bytes or space now, and not before.
    var mustChangeReadinessSource: Bool { readinessSource == .unannounced && isOpen && isAnnounced }

    /// The kernel reports that bytes can be moved, and does so in every pass until they have been. Ending the
    /// registration and making it again takes two system calls, so it stays until the kernel repeats a
    /// report.
    ///
    /// - Parameter since: How many transfers there had been when the engine asked the kernel.
    @inline(__always)
    private mutating func reportReady(since: UInt64?) -> Action {
        guard isOpen else { return .none }
        if readinessSource == .kernelWhenFull {
            // Room is checked before it is delivered. The kernel doesn't report the room of a write buffer.
            guard room == .full else { return .none }
            room = .assumed
        } else if let since {
            // The kernel repeats its report of what the backend has not received meanwhile.
            guard since == transfers else { return readinessSource.asksBackend ? .askBackend : .none }
            mayReportBeStale = false
        } else if mayReportBeStale || readinessSource == .kernelThroughBackend {
            return .askKernel(since: transfers)
        }
        let isKnown = delegateState == .missing && pendingBits & transferBits != 0
        let isNews = delivery == .idle && !isUnacknowledged && !isKnown
        insertTransfer()
        if isNews { return .none }
        attachment?.disarm()
        return .disarm
    }

    /// The backend has answered ``Action/askBackend``, which the engine performed after `since` transfers.
    mutating func noteAvailability(_ availability: Availability, since: UInt64) {
        switch availability {
        case .waiting:
            if readinessSource == .kernelWhenFull, room == .assumed || room == .found { insertTransfer() }
        case .ready:
            guard since == transfers, readinessSource != .unannounced else { return }
            insertTransfer()
            room = .found
        case .atEnd: reachEnd()
        case .failed(let error): fail(error)
        }
    }

    /// The engine has checked for room after `since` transfers; a later transfer knows better.
    mutating func checked(_ room: Room, since: UInt64) {
        guard since == transfers else { return }
        self.room = room
        if room != .found { pendingBits &= ~transferBits }
    }

    // MARK: Delivery

    /// Whether there is an event to deliver.
    var canDeliver: Bool { delivery == .idle && pendingBits != 0 }

    /// Whether the loop has to be woken to deliver an event.
    var mustDeliver: Bool { canDeliver && delegateState != .missing }

    /// A loop serves the stream, because the kernel reports it ready or because the engine has signalled its
    /// source.
    ///
    /// - Parameters:
    ///   - poll: The last one of the loop.
    ///   - isReady: Whether the kernel reports that bytes can be moved.
    ///   - since: How many transfers there had been when the engine asked the kernel.
    ///   - isInRunningMode: Whether a membership includes the loop's running mode. Called only if the loop is
    ///     not up to date.
    @inline(__always)
    mutating func serve(
        after poll: Poll, isReady: Bool, since: UInt64? = nil, isInRunningMode: (Membership) -> Bool
    ) -> Action {
        // A loop that the stream has left may still hold a report.
        guard isScheduled(on: poll.loop) else { return .none }
        if isReady {
            let action = reportReady(since: since)
            guard action == .none else { return action }
        }
        guard canDeliver else { return delivery == .held && !isOnQueue ? .turnPassed : .none }
        guard attachment!.isUpToDate || isInRunningMode(attachment!.membership) else { return .none }
        if mustCheckRoom { return .checkRoom(since: transfers) }
        if isOnQueue { return enqueue() }
        (delivery, pollOfDelivery) = (.underway, poll)
        return beginBatch()
    }

    private mutating func enqueue() -> Action {
        delivery = .enqueued
        return .enqueue
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
        (delivery, pollOfDelivery) = (.idle, .none)
        return .none
    }

    /// An event has been delivered, or has found no delegate and waits for one.
    ///
    /// - Parameter mayContinue: Whether the rest of the batch may be delivered here.
    @inline(__always)
    mutating func delivered(_ event: Stream.Event, toDelegate isDelivered: Bool, mayContinue: Bool) -> Action
    {
        if isDelivered, mayContinue, let next = takeNext() { return .deliver(next) }
        (delivery, pollOfDelivery) = (.idle, .none)
        delegateState = isDelivered || delegateState == .replaced ? .expected : .missing
        if !isDelivered { restore(event) }
        return .none
    }

    /// Whether the batch has more events.
    var hasMoreInBatch: Bool { batchBits & pendingBits != 0 }

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

    private mutating func insert(_ event: Stream.Event) {
        pendingBits |= UInt8(truncatingIfNeeded: event.rawValue)
    }

    @inline(__always)
    private mutating func insertTransfer() {
        if isOpen, !isUnacknowledged { pendingBits |= transferBits }
    }

    private var mustCheckRoom: Bool {
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

    /// Whether no event can be delivered now: the delegate is being called, a callback on the queue will call it, or
    /// the events are held.
    var isDeliveryBlocked: Bool { delivery != .idle }

    /// Whether the delegate is being called, or a callback on the queue will call it.
    var isCallingDelegate: Bool { delivery == .underway || delivery == .enqueued }

    /// Whether the delegate, if there is one, has read or written since the last transfer event.
    var isAcknowledged: Bool { delegateState != .missing && !isUnacknowledged }
}

// MARK: - Its loop

extension StreamMachine {
    var isScheduled: Bool { attachment != nil }

    @inline(__always)
    func isScheduled(on loop: LoopIdentity) -> Bool { attachment?.loop == loop }

    func isScheduled(on loop: LoopIdentity, _ isInRunningMode: (Membership) -> Bool) -> Bool {
        isScheduled(on: loop) && isInRunningMode(attachment!.membership)
    }

    /// The stream is scheduled in a mode of a loop; one that is on another loop moves, with its pending events. On the new
    /// loop an unacknowledged event is delivered again.
    ///
    /// - Parameter attach: Creates what the engine has on a loop. Called for a new one.
    /// - Returns: Whether the stream is scheduled: false once it is closed; and what it has left.
    mutating func schedule(
        on loop: LoopIdentity, _ mode: RunLoop.Mode, common: ModeSet,
        attach: () -> ScheduledLoop? = { nil }
    ) -> (isScheduled: Bool, left: Attachment?) {
        guard !isClosed else { return (false, nil) }
        wasScheduled = true
        // A subclass may have its own kind of delegate by now.
        if delegateState == .missing { delegateState = .expected }
        pollOfDelivery = .none
        var left: Attachment?
        if !isScheduled(on: loop) {
            left = attachment
            attachment = Attachment(loop: loop, scheduled: attach())
            isUnacknowledged = false
            // The loop may hold a report from the last time that the stream was there.
            if transfers > 0 { mayReportBeStale = true }
        }
        attachment?.change { $0.add(mode, common: common) }
        return (true, left)
    }

    /// The stream is removed from a mode of a loop.
    mutating func unschedule(from loop: LoopIdentity, _ mode: RunLoop.Mode, common: ModeSet) -> Removal {
        guard isScheduled(on: loop) else { return .none }
        pollOfDelivery = .none
        attachment?.change { $0.remove(mode, common: common) }
        return attachment!.membership.isEmpty ? .left(attachment.take()!) : .changed
    }

    /// The result of leaving a mode.
    enum Removal {
        case none
        /// The stream is still scheduled in another mode.
        case changed
        /// The stream is not scheduled any more.
        case left(Attachment)
    }

    /// The stream is removed from its loop and from its queue. A callback that has not started there delays no other
    /// delivery.
    @discardableResult
    mutating func detach() -> Attachment? {
        isOnQueue = false
        pollOfDelivery = .none
        if delivery == .enqueued { delivery = .idle }
        return attachment.take()
    }

    mutating func loopEnded(_ loop: LoopIdentity) { if isScheduled(on: loop) { detach() } }

    /// Events are delivered on a queue from now on.
    mutating func joinQueue() { isOnQueue = true }

    /// What the engine has to do after a change.
    @inline(__always)
    var next: Action { isDeliveryBlocked ? .none : nextWhenIdle }

    @inline(never)
    private var nextWhenIdle: Action {
        guard isScheduled else { return .none }
        if isOpen, readinessSource.asksBackend || room == .awaited { return .askBackend }
        if isBehind { return .update }
        return mustDeliver ? .signal : .none
    }

    /// Whether to update the loop, because it is behind or has an event to deliver, and whether to enqueue a callback, or a
    /// turn for held events. Nothing while the delegate is being called: the engine asks again after that.
    mutating func takeUpdate() -> (isForLoop: Bool, isForQueue: Bool) {
        if isDeliveryBlocked { return mustTurn ? (isScheduled && !isOnQueue, isOnQueue) : (false, false) }
        // The loop checks for room before the queue delivers it.
        let isForQueue = isOnQueue && mustDeliver && !mustCheckRoom
        let isForLoop = isScheduled && mustDeliver && !isForQueue || isBehind
        if isForQueue { delivery = .enqueued }
        return (isForLoop, isForQueue)
    }

    /// Another thread's loop is to be updated. Returns whether to ask it: false if an earlier request is
    /// pending.
    mutating func requestUpdate() -> Bool { attachment?.requestUpdate() ?? false }

    /// Takes what `loop` has to do for the stream; nil if the stream is not scheduled there.
    mutating func update(_ loop: LoopIdentity) -> Attachment.Update? {
        guard var attachment, attachment.loop == loop else { return nil }
        if isAcknowledged { attachment.isDisarmed = false }
        let isWatched = needsWatch(isDisarmed: attachment.isDisarmed)
        defer { self.attachment = attachment }
        return attachment.update(isWatched: isWatched, isSignalled: mustDeliver || mustTurn)
    }

    /// The kernel refuses to watch the descriptor for `loop`.
    mutating func failWatching(on loop: LoopIdentity, _ error: any Error) {
        if isScheduled(on: loop) { attachment?.noteUnwatched() }
        fail(error)
    }

    /// Whether the loop's registration differs from what it should be.
    @inline(__always)
    private var isBehind: Bool {
        guard let isDisarmed = attachment?.isDisarmed else { return false }
        return needsWatch(isDisarmed: isDisarmed) != attachment!.isWatched
    }

    /// Whether the kernel has to watch the descriptor.
    ///
    /// - Parameter isDisarmed: Whether the loop has performed ``Action/disarm``.
    @inline(__always)
    func needsWatch(isDisarmed: Bool) -> Bool {
        guard isOpen else { return false }
        switch readinessSource {
        case .backend, .unannounced: return false
        case .kernel, .kernelThroughBackend: return !isDisarmed || isAcknowledged
        case .kernelWhenFull: return room == .full
        }
    }
}
