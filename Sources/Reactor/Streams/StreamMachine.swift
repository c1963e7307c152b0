/// Decides what happens to a stream: its status, which event is delivered when, and what has to be found out before.
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
        /// Bring the run loops up to date.
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

    enum Audience {
        case expected
        /// The last event found no delegate, and waits for one; so do those that follow it.
        case missing
        /// A delegate was set while the last event looked for one.
        case renewed
    }

    // Small fields, and close together: there are two of these for every connection.

    private(set) var error: (any Error)?
    /// How many reads or writes have ended.
    private(set) var transfers: UInt64 = 0
    private(set) var status = Stream.Status.notOpen
    private(set) var readying = Readying.backend
    private(set) var room = Room.assumed
    private(set) var delivery = Delivery.idle
    private(set) var audience = Audience.expected
    private(set) var isClosed = false
    private(set) var isHandedOver = false
    private(set) var isUnanswered = false
    /// Whether bytes were moved outside the delegate's callback, or on a queue: what the kernel reports may be older.
    private(set) var isReportDoubtful = false
    private let transferBits: UInt8
    private(set) var pendingBits: UInt8 = 0
    private(set) var turnBits: UInt8 = 0

    /// - Parameter event: What is delivered when bytes can be moved.
    init(_ event: Stream.Event) { transferBits = UInt8(truncatingIfNeeded: event.rawValue) }

    /// What is delivered when bytes can be moved.
    var event: Stream.Event { Stream.Event(rawValue: UInt(transferBits)) }

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
    mutating func opened(_ readying: Readying, isAtEnd: Bool) {
        guard status == .opening else { return }
        self.readying = readying
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
    mutating func begin(count: Int, isOnQueue: Bool) -> Admission {
        guard isOpen else { return refusal }
        guard count > 0 else { return .refused(0) }
        if status == .open { status = transferBits == 2 ? .reading : .writing }
        pendingBits &= ~transferBits
        isUnanswered = false
        if delivery == .idle || isOnQueue { isReportDoubtful = true }
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
        if readying == .kernelWhenFull, room == .assumed { insertTransfer() }
    }

    // MARK: Readiness

    /// The kernel reports that bytes can be moved. It goes on reporting for as long as that is so; ending the
    /// registration and making it again costs two system calls, so it stays until the kernel really does report again.
    ///
    /// - Parameter since: How many transfers there had been when the kernel was asked on purpose.
    @inline(__always)
    mutating func becomeReady(since: UInt64? = nil) -> Action {
        guard isOpen else { return .none }
        if readying == .kernelWhenFull {
            // Room is checked before it is delivered, and a write buffer's is not the kernel's to report.
            guard room == .full else { return .none }
            room = .assumed
        } else if let since {
            guard since == transfers else { return .none }
        } else if isReportDoubtful {
            isReportDoubtful = false
            return .askKernel(since: transfers)
        }
        let isKnown = audience == .missing && pendingBits & transferBits != 0
        let isNews = delivery == .idle && !isUnanswered && !isKnown
        insertTransfer()
        return isNews ? .none : .disarm
    }

    /// The backend has answered ``Action/askBackend``, which was asked after `since` transfers.
    mutating func answer(_ prospect: Prospect, since: UInt64) {
        switch prospect {
        case .waiting:
            if readying == .kernelWhenFull, room == .assumed || room == .found { insertTransfer() }
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
    var mustDeliver: Bool { canDeliver && audience != .missing }

    /// A loop on which the stream is scheduled can deliver.
    @inline(__always)
    mutating func turn(isOnQueue: Bool) -> Action {
        guard canDeliver else { return .none }
        if mustCheckRoom { return .checkRoom(since: transfers) }
        if isOnQueue { return enqueue() }
        delivery = .underway
        return beginTurn()
    }

    /// Delivers on the queue, if that needs no loop. ``Action/none`` if it does.
    mutating func turnToQueue() -> Action { mustDeliver && !mustCheckRoom ? enqueue() : .none }

    private mutating func enqueue() -> Action {
        delivery = .enqueued
        return .enqueue
    }

    /// The callback on the queue begins.
    mutating func queueTurned() -> Action {
        delivery = .underway
        return beginTurn()
    }

    /// The stream leaves its queue, on which a callback may be left.
    mutating func leaveQueue() {
        if delivery == .enqueued { delivery = .idle }
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
        audience = isDelivered || audience == .renewed ? .expected : .missing
        if !isDelivered { restore(event) }
        return .none
    }

    /// Whether the turn has more events.
    var hasMoreInTurn: Bool { turnBits & pendingBits != 0 }

    @inline(__always)
    private mutating func takeNext() -> Stream.Event? {
        if audience == .renewed { audience = .expected }
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
        readying == .kernelWhenFull && room != .found && pendingBits & transferBits != 0
    }

    // MARK: Delegate and loops

    /// The stream has got a delegate, for which what its predecessor has not answered is delivered again.
    ///
    /// - Parameter isOther: Whether it is another one than before. If not, it only ends the lack of one.
    /// - Returns: Whether that changes what there is to do.
    mutating func welcomeDelegate(isOther: Bool) -> Bool {
        guard isOther || audience == .missing else { return false }
        audience = .renewed
        isUnanswered = false
        return true
    }

    /// The stream is scheduled on a loop or a mode.
    ///
    /// - Parameter isFirst: Whether it was on no loop; then what has not been answered is delivered again.
    mutating func schedule(isFirst: Bool) {
        if isFirst { isUnanswered = false }
        // A subclass may have a delegate of its own making now.
        if audience == .missing { audience = .expected }
    }

    /// What is left to do after a change.
    @inline(__always)
    func next(isScheduled: Bool) -> Action {
        guard delivery == .idle, isScheduled else { return .none }
        return isOpen && (readying == .backend || room == .awaited) ? .askBackend : .updateLoops
    }

    /// Whether the delegate is being called, or about to be on a queue.
    var isDelivering: Bool { delivery != .idle }

    /// Whether the delegate, if there is one, has answered.
    var isAnswered: Bool { audience != .missing && !isUnanswered }

    /// Whether the kernel has to watch the descriptor.
    ///
    /// - Parameter isDisarmed: Whether the loop has performed ``Action/disarm``.
    @inline(__always)
    func needsWatch(isDisarmed: Bool) -> Bool {
        guard isOpen else { return false }
        switch readying {
        case .backend: return false
        case .kernel: return !isDisarmed || isAnswered
        case .kernelWhenFull: return room == .full
        }
    }
}
