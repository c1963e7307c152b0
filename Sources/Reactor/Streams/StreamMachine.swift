import SystemPackage

/// Decides what happens to a stream: its status, which event is delivered when and by which run loop, and what has to be
/// found out before.
///
/// Pure: no descriptor, loop, lock or clock. Every method that changes it is an input, and the ``Action`` that an input
/// returns is for the engine to perform. An event is pending until it is delivered. One of bytes or space that was
/// delivered is unanswered until the next read or write.
struct StreamMachine {
    /// What the engine does next.
    enum Action: Equatable {
        case none
        /// Call the delegate, and report with ``delivered(_:toDelegate:goesOn:)``.
        case deliver(Stream.Event)
        /// Put a callback on the stream's queue, which begins with ``queueTurned()``.
        case enqueue
        /// Stop watching the descriptor on this loop until the delegate answers: the kernel reports the same again.
        case disarm
        /// Ask the kernel again, because its report may be older than the last transfer. The answer counts unless there
        /// have been more transfers than these.
        case askKernel(since: UInt64)
        /// Find out whether there is room, before the delegate is called for it. Counts as ``askKernel(since:)`` does.
        case checkRoom(since: UInt64)
        /// Ask the backend whether bytes can be moved.
        case askBackend
        /// Have the only loop, which is up to date, serve the stream in its next pass.
        case raise
        /// Bring the run loops up to date that ``takeLoopsToUpdate()`` names, and enqueue a callback if it says so.
        case updateLoops
    }

    /// Whether a read or a write may be made.
    enum Admission: Equatable {
        case begun
        /// The stream has to open before.
        case opening
        /// It returns this.
        case refused(Int)
    }

    enum Delivery {
        case idle
        /// A callback is on the queue, and has not begun.
        case enqueued
        /// The delegate is being called. It is not called again inside that, nor by another loop.
        case underway
    }

    enum DelegateState {
        /// There is one, as far as is known: only delivery finds out.
        case expected
        /// The last event found no delegate, and waits for one; so do those that follow it.
        case missing
        /// A delegate was set while the last event looked for one.
        case replaced
    }

    // Small fields, and close together: there are two of these for every connection.

    private(set) var error: (any Error)?
    /// How many reads or writes have ended.
    private(set) var transfers: UInt64 = 0
    private(set) var status = Stream.Status.notOpen
    private(set) var readinessSource = ReadinessSource.backend
    private(set) var room = Room.assumed
    private(set) var delivery = Delivery.idle
    private(set) var delegateState = DelegateState.expected
    private(set) var isClosed = false
    private(set) var isHandedOver = false
    private(set) var isUnanswered = false
    /// Whether events are delivered on a queue. Then the only loop is a hidden one.
    private(set) var isOnQueue = false
    /// Whether bytes were moved outside the delegate's callback, or on a queue: what the kernel reports may be older.
    private(set) var mayReportBeStale = false
    private let transferBits: UInt8
    private(set) var pendingBits: UInt8 = 0
    private(set) var turnBits: UInt8 = 0
    /// The loops that the stream is scheduled on. None when it is over.
    private(set) var schedule = StreamSchedule()

    /// - Parameter event: What is delivered when bytes can be moved.
    init(_ event: Stream.Event) { transferBits = UInt8(truncatingIfNeeded: event.rawValue) }

    /// What is delivered when bytes can be moved.
    var event: Stream.Event { Stream.Event(rawValue: UInt(transferBits)) }

    /// What the kernel watches the descriptor for, when it does.
    var interest: Readiness { event == .hasBytesAvailable ? .readable : .writable }

    var pending: Stream.Event { Stream.Event(rawValue: UInt(pendingBits)) }

    /// Whether bytes can be moved.
    var isOpen: Bool { status == .open || status == .reading || status == .writing }

    // MARK: Opening and closing

    /// The client opens the stream. True if there is something to open.
    mutating func open() -> Bool {
        guard status == .notOpen else { return false }
        status = .opening
        return true
    }

    /// - Parameter isAtEnd: Whether there was nothing to move from the start.
    mutating func opened(_ readinessSource: ReadinessSource, isAtEnd: Bool) {
        guard status == .opening else { return }
        self.readinessSource = readinessSource
        status = .open
        insert(.openCompleted)
        if isAtEnd { reachEnd() }
    }

    /// The client closes the stream. True if there is something to release. An error outlives the closing.
    mutating func close() -> Bool {
        guard status != .notOpen, !isClosed else { return false }
        isClosed = true
        pendingBits = 0
        isUnanswered = false
        if status != .error { status = .closed }
        return true
    }

    /// The stream has failed, unless closing it was the cause. Delivered once, and nothing after it.
    mutating func fail(_ error: any Error) {
        if !isClosed { loseBytes(error) }
    }

    /// Accepted bytes are lost, which is an error of a closed stream too, though not delivered.
    mutating func loseBytes(_ error: any Error) {
        guard status != .error else { return }
        pendingBits = 0
        isUnanswered = false
        status = .error
        self.error = error
        if !isClosed { insert(.errorOccurred) }
    }

    /// No bytes, or no room, will come any more. Delivered once; only an error may follow.
    mutating func reachEnd() {
        guard isOpen else { return }
        status = .atEnd
        pendingBits &= ~transferBits
        insert(.endEncountered)
    }

    /// The client has ended the output, so the end need not be delivered.
    mutating func shutDown() {
        guard isOpen else { return }
        status = .atEnd
        pendingBits &= ~transferBits
    }

    /// A hand-off takes the stream. False if another one owns it.
    mutating func handOver() -> Bool {
        defer { isHandedOver = true }
        return !isHandedOver || isClosed
    }

    // MARK: Transfers

    /// A read or a write begins: the answer to the event that was delivered, or is pending.
    @inline(__always)
    mutating func begin(count: Int) -> Admission {
        guard isOpen else { return refusal }
        guard count > 0 else { return .refused(0) }
        if status == .open { status = transferBits == 2 ? .reading : .writing }
        pendingBits &= ~transferBits
        isUnanswered = false
        if delivery == .idle || isOnQueue { mayReportBeStale = true }
        return .begun
    }

    private var refusal: Admission {
        switch status {
        case .opening: .opening
        case .atEnd: .refused(0)
        default: .refused(-1)
        }
    }

    /// A read or a write has ended: what became pending meanwhile may be what it has moved.
    @inline(__always)
    mutating func move(_ transfer: Transfer) {
        if status == .reading || status == .writing { status = .open }
        pendingBits &= ~transferBits
        transfers += 1
        room = transfer.room
        if transfer.isAtEnd { reachEnd() }
        if readinessSource == .kernelWhenFull, room == .assumed { insertTransfer() }
    }

    // MARK: Readiness

    /// The kernel reports that bytes can be moved. It goes on reporting for as long as that is so; ending the
    /// registration and making it again costs two system calls, so it stays until the kernel really does report again.
    ///
    /// - Parameter since: How many transfers there had been when the kernel was asked on purpose.
    @inline(__always)
    private mutating func reportReady(on loop: LoopIdentity, since: UInt64?) -> Action {
        guard isOpen else { return .none }
        if readinessSource == .kernelWhenFull {
            // Room is checked before it is delivered, and a write buffer's is not the kernel's to report.
            guard room == .full else { return .none }
            room = .assumed
        } else if let since {
            guard since == transfers else { return .none }
        } else if mayReportBeStale {
            mayReportBeStale = false
            return .askKernel(since: transfers)
        }
        let isKnown = delegateState == .missing && pendingBits & transferBits != 0
        let isNews = delivery == .idle && !isUnanswered && !isKnown
        insertTransfer()
        if isNews { return .none }
        schedule.disarm(on: loop)
        return .disarm
    }

    /// The backend has answered ``Action/askBackend``, which was asked after `since` transfers.
    mutating func answer(_ availability: Availability, since: UInt64) {
        switch availability {
        case .waiting:
            if readinessSource == .kernelWhenFull, room == .assumed || room == .found { insertTransfer() }
        case .ready:
            guard since == transfers else { return }
            insertTransfer()
            room = .found
        case .atEnd: reachEnd()
        case .failed(let error): fail(error)
        }
    }

    /// The room has been checked after `since` transfers: a later one knows better.
    mutating func checked(_ room: Room, since: UInt64) {
        guard since == transfers else { return }
        self.room = room
        if room != .found { pendingBits &= ~transferBits }
    }

    // MARK: Delivery

    /// Whether there is an event for a loop to deliver.
    var canDeliver: Bool { delivery == .idle && pendingBits != 0 }

    /// Whether a loop has to be woken to deliver an event.
    var mustDeliver: Bool { canDeliver && delegateState != .missing }

    /// A loop serves the stream, because of what the kernel reports (`isReady`) or because it was asked to.
    ///
    /// - Parameters:
    ///   - since: How many transfers there had been when the kernel was asked on purpose.
    ///   - isInRunningMode: Whether a membership has the mode that the loop runs in. Only asked if the loop is not up to
    ///     date.
    @inline(__always)
    mutating func turn(
        on loop: LoopIdentity, isReady: Bool, since: UInt64? = nil,
        isInRunningMode: (Membership) -> Bool
    ) -> Action {
        if isReady {
            let action = reportReady(on: loop, since: since)
            guard action == .none else { return action }
        }
        guard canDeliver else { return .none }
        guard schedule.isUpToDate(loop) || isScheduled(on: loop, isInRunningMode) else { return .none }
        if mustCheckRoom { return .checkRoom(since: transfers) }
        if isOnQueue { return enqueue() }
        delivery = .underway
        return beginTurn()
    }

    private mutating func enqueue() -> Action {
        delivery = .enqueued
        return .enqueue
    }

    /// The callback on the queue begins.
    mutating func queueTurned() -> Action {
        delivery = .underway
        return beginTurn()
    }

    /// What becomes pending by the delegate's answers waits for the next turn, so that other streams get theirs.
    @inline(__always)
    private mutating func beginTurn() -> Action {
        turnBits = pendingBits
        if let event = takeNext() { return .deliver(event) }
        delivery = .idle
        return .none
    }

    /// An event has been delivered, or has found no delegate and waits for one.
    ///
    /// - Parameter goesOn: Whether the other events of the turn may be delivered here.
    @inline(__always)
    mutating func delivered(_ event: Stream.Event, toDelegate isDelivered: Bool, goesOn: Bool) -> Action {
        if isDelivered, goesOn, let next = takeNext() { return .deliver(next) }
        delivery = .idle
        delegateState = isDelivered || delegateState == .replaced ? .expected : .missing
        if !isDelivered { restore(event) }
        return .none
    }

    /// Whether the turn has more events.
    var hasMoreInTurn: Bool { turnBits & pendingBits != 0 }

    @inline(__always)
    private mutating func takeNext() -> Stream.Event? {
        if delegateState == .replaced { delegateState = .expected }
        // Room that was used meanwhile is checked again before it is delivered.
        let wanted = turnBits & pendingBits & (mustCheckRoom ? ~transferBits : .max)
        guard wanted != 0 else { return nil }
        let next = wanted & (~wanted &+ 1)
        pendingBits &= ~next
        turnBits &= ~next
        if next == transferBits { isUnanswered = true }
        return Stream.Event(rawValue: UInt(next))
    }

    /// Makes `event` pending again, unless a transfer, an error or the closing has made it void meanwhile.
    private mutating func restore(_ event: Stream.Event) {
        guard !isClosed, status != .error || event == .errorOccurred else { return }
        if event == self.event {
            guard isOpen, isUnanswered else { return }
            isUnanswered = false
        }
        insert(event)
    }

    private mutating func insert(_ event: Stream.Event) {
        pendingBits |= UInt8(truncatingIfNeeded: event.rawValue)
    }

    @inline(__always)
    private mutating func insertTransfer() {
        if isOpen, !isUnanswered { pendingBits |= transferBits }
    }

    private var mustCheckRoom: Bool {
        readinessSource == .kernelWhenFull && room != .found && pendingBits & transferBits != 0
    }

    // MARK: The delegate

    /// The stream has got a delegate, for which what its predecessor has not answered is delivered again.
    ///
    /// - Parameter isOther: Whether it is another one than before. If not, it only ends the lack of one.
    /// - Returns: Whether that changes what there is to do.
    mutating func setDelegate(isOther: Bool) -> Bool {
        guard isOther || delegateState == .missing else { return false }
        delegateState = .replaced
        isUnanswered = false
        return true
    }

    /// Whether the delegate is being called, or about to be on a queue.
    var isDelivering: Bool { delivery != .idle }

    /// Whether the delegate, if there is one, has answered.
    var isAnswered: Bool { delegateState != .missing && !isUnanswered }
}

// MARK: - Run loops

extension StreamMachine {
    var isScheduled: Bool { !schedule.isEmpty }

    func isScheduled(on loop: LoopIdentity, _ isInRunningMode: (Membership) -> Bool) -> Bool {
        schedule[loop].map { isInRunningMode($0.membership) } ?? false
    }

    /// The stream is scheduled in a mode of a loop. False if it is over. On its first loop what has not been answered is
    /// delivered again.
    mutating func schedule(on loop: LoopIdentity, _ mode: RunLoop.Mode, common: ModeSet) -> Bool {
        guard !isClosed else { return false }
        if !isScheduled { isUnanswered = false }
        // A subclass may have a delegate of its own making now.
        if delegateState == .missing { delegateState = .expected }
        schedule.add(mode, of: loop, common: common)
        return true
    }

    /// The stream leaves a mode of a loop.
    mutating func unschedule(
        from loop: LoopIdentity, _ mode: RunLoop.Mode, common: ModeSet
    ) -> StreamSchedule.Removal {
        schedule.remove(mode, of: loop, common: common)
    }

    /// The stream leaves all loops, and its queue: a callback that has not begun there holds up no other delivery.
    mutating func unscheduleEverywhere() {
        schedule = StreamSchedule()
        isOnQueue = false
        if delivery == .enqueued { delivery = .idle }
    }

    mutating func loopEnded(_ loop: LoopIdentity) { schedule.remove(loop) }

    /// Events are delivered on a queue from now on.
    mutating func joinQueue() { isOnQueue = true }

    /// What is left to do after a change.
    @inline(__always)
    var next: Action { isDelivering ? .none : nextWhenIdle }

    @inline(never)
    private var nextWhenIdle: Action {
        guard isScheduled else { return .none }
        if isOpen, readinessSource == .backend || room == .awaited { return .askBackend }
        if schedule.hasSeveralLoops || isBehind(schedule.first!) { return .updateLoops }
        return mustDeliver ? .raise : .none
    }

    /// The loops to be brought up to date, which are all if one has to deliver an event; or whether a callback is to be put
    /// on the queue. Neither while the delegate is being called: this is asked again when that returns.
    mutating func takeLoopsToUpdate() -> (loops: SmallArray<LoopIdentity>, isForQueue: Bool) {
        if isDelivering { return (SmallArray(), false) }
        // Room is checked by the loop before the queue delivers it.
        let isForQueue = isOnQueue && mustDeliver && !mustCheckRoom
        let isForLoop = mustDeliver && !isForQueue
        if isForQueue { delivery = .enqueued }
        return (schedule.loops { isForLoop || isBehind($0) }, isForQueue)
    }

    /// A loop of another thread is to be brought up to date. True if it has to be asked: it was not yet.
    mutating func requestUpdate(of loop: LoopIdentity) -> Bool { schedule.requestUpdate(of: loop) }

    /// What `loop` has to do for the stream, which counts as done; nil if the stream is not scheduled there.
    mutating func update(_ loop: LoopIdentity) -> StreamSchedule.Update? {
        let (isWatched, isWatchedDisarmed) = (needsWatch(isDisarmed: false), needsWatch(isDisarmed: true))
        return schedule.update(loop, isAnswered: isAnswered, isRaised: mustDeliver) {
            $0 ? isWatchedDisarmed : isWatched
        }
    }

    /// The kernel refuses to watch the descriptor for `loop`.
    mutating func failWatching(on loop: LoopIdentity, _ error: any Error) {
        schedule.noteUnwatched(on: loop)
        fail(error)
    }

    /// Whether a loop does not have the kernel watch what it should.
    @inline(__always)
    private func isBehind(_ entry: StreamSchedule.Entry) -> Bool {
        needsWatch(isDisarmed: entry.isDisarmed) != entry.isWatched
    }

    /// Whether the kernel has to watch the descriptor.
    ///
    /// - Parameter isDisarmed: Whether the loop has performed ``Action/disarm``.
    @inline(__always)
    func needsWatch(isDisarmed: Bool) -> Bool {
        guard isOpen else { return false }
        switch readinessSource {
        case .backend: return false
        case .kernel: return !isDisarmed || isAnswered
        case .kernelWhenFull: return room == .full
        }
    }
}
