import SystemPackage

/// Decides what happens to a stream: its status, which event is delivered when and where, and what the engine
/// has to find out first.
///
/// Pure: uses no descriptor, loop, lock or clock; it only keeps the loop that the stream is scheduled on. Every mutating
/// method is an input; the ``Action`` that it returns is for the engine to perform. An event is pending until it is delivered.
/// A delivered transfer event (bytes or space) stays unacknowledged until the next read or write.
struct StreamMachine {
    /// The next step of the engine.
    enum Action: Equatable {
        case none
        /// Ask the backend whether a report of the kernel, which may be older than the last transfer, is still true. If so, it
        /// is ``Report/confirmed``.
        case confirm
        /// Check for room before calling the delegate for it, and report ``checked(_:)``.
        case checkRoom
        /// Call the delegate, then report ``delivered(_:toDelegate:mayContinue:)``.
        case deliver(Stream.Event)
        /// Put a callback on the stream's queue, which starts with ``beginCallback()``.
        case enqueue
        /// Stop watching the descriptor until the delegate reads or writes: the kernel has repeated its report.
        case disarm
        /// Have the loop, which is up to date, serve the stream in its next pass.
        case signal
        /// Do what ``takeUpdate()`` says.
        case update
        /// Tell the backend that a pass has completed since ``hold(awaitsPass:)``.
        case passCompleted
        /// Fail the stream: the engine's check for room has failed.
        case fail(Errno)
    }

    /// The kernel's report on bytes that can be moved.
    enum Report {
        /// Nothing: the engine has signalled the source.
        case none
        /// The report of a poll.
        case made(Poll)
        /// It says so now.
        case confirmed
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
        /// Assumed to be there until a delivery fails.
        case expected
        /// The last event found no delegate. It waits for one, and so do later events.
        case missing
        /// A delegate was set while the last event was looking for one.
        case replaced
    }

    // Small fields, kept together: every connection has two machines. Only the machine's own methods change them.

    var error: (any Error)?
    /// The last poll of the thread that has made the last transfer, before that; `none` before the first transfer, and
    /// `unknown` during one.
    var lastTransfer = Poll.none
    var status = Stream.Status.notOpen
    var readinessSource = ReadinessSource.backend
    var room = Room.assumed
    var delivery = Delivery.idle
    var delegateState = DelegateState.expected
    var isClosed = false
    var isHandedOver = false
    /// Whether the client has ended the output itself.
    var isShutDown = false
    var isUnacknowledged = false
    var wasScheduled = false
    var awaitsPass = false
    /// Whether events are delivered on a queue. The loop is the streams thread's then.
    var isOnQueue = false
    let transferBits: UInt8
    var pendingBits: UInt8 = 0
    var batchBits: UInt8 = 0
    /// The loop that the stream is scheduled on; nil once the stream is closed.
    var loopSchedule: LoopSchedule?

    /// - Parameter event: The event to deliver when bytes can be moved.
    init(_ event: Stream.Event) { transferBits = UInt8(truncatingIfNeeded: event.rawValue) }

    /// The event that is delivered when bytes can be moved.
    var event: Stream.Event { Stream.Event(rawValue: UInt(transferBits)) }

    /// The events that the kernel watches the descriptor for.
    var interest: Readiness { event == .hasBytesAvailable ? .readable : .writable }

    var pending: Stream.Event { Stream.Event(rawValue: UInt(pendingBits)) }

    /// Whether bytes can be moved.
    @inline(__always)
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
    /// - Parameter awaitsPass: Whether the loop or the queue is to report its next pass.
    mutating func hold(awaitsPass: Bool) { (delivery, self.awaitsPass) = (.held, awaitsPass) }

    /// Ends what ``hold(awaitsPass:)`` began.
    mutating func release() { if delivery == .held { delivery = .idle } }

    /// The client closes the stream. Returns whether there is something to release. An error outlives the
    /// closing.
    ///
    /// - Parameter evenUnopened: Whether a stream that was never opened is closed too, and cannot be opened any more.
    mutating func close(evenUnopened: Bool = false) -> Bool {
        guard evenUnopened || status != .notOpen, !isClosed else { return false }
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
    @inline(__always)
    mutating func begin(count: Int) -> Admission {
        guard isOpen else { return refusal }
        guard count > 0 else { return .refused(0) }
        if status == .open { status = transferBits == 2 ? .reading : .writing }
        pendingBits &= ~transferBits
        isUnacknowledged = false
        lastTransfer = .unknown
        return .begun
    }

    private var refusal: Admission {
        switch status {
        case .opening: .opening
        case .atEnd: .refused(0)
        default: .refused(-1)
        }
    }

    /// A read or a write begins and has finished at once.
    ///
    /// - Parameter poll: The last one of the calling thread.
    @inline(__always)
    mutating func makeTransfer(_ transfer: Transfer, after poll: Poll) {
        isUnacknowledged = false
        note(transfer, after: poll)
    }

    /// A read or a write has finished. A transfer event that became pending meanwhile may be about the bytes
    /// that it moved, so it is dropped.
    ///
    /// - Parameter poll: The last one of the calling thread.
    @inline(__always)
    mutating func finishTransfer(_ transfer: Transfer, after poll: Poll) {
        if status == .reading || status == .writing { status = .open }
        note(transfer, after: poll)
    }

    @inline(__always)
    private mutating func note(_ transfer: Transfer, after poll: Poll) {
        pendingBits &= ~transferBits
        lastTransfer = poll
        room = transfer.room
        if transfer.isAtEnd { reachEnd() }
        if readinessSource == .kernelWhenFull, room.isLikely { insertTransfer() }
    }

    /// Opens a stream again that has ended, because bytes are put back that come before its end.
    ///
    /// - Returns: The end or the error; ``Availability/waiting`` if there is none. Nil unless the stream is open or has ended.
    mutating func reopen() -> Availability? {
        if isOpen {
            isUnacknowledged = false
            return .waiting
        }
        guard !isClosed, status == .atEnd || status == .error else { return nil }
        defer { (status, error) = (.open, nil) }
        isUnacknowledged = false
        pendingBits &= ~UInt8((Stream.Event.endEncountered.rawValue | Stream.Event.errorOccurred.rawValue))
        return error.map { .failed($0) } ?? .atEnd
    }
}
