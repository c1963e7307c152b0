import Synchronization
import SystemPackage

/// Holds bytes that `write` has accepted and the kernel has not taken, for a stream that asked for it.
///
/// The bytes are sent from the streams thread, so they move whatever the stream's loop does: while it runs in
/// another mode, after the stream was removed from it or closed, and while the process exits.
final class WriteBuffer: Sendable {
    /// Functions that send the bytes and observe the result. Only `send` is called with a lock held, and
    /// takes none.
    struct Client: Sendable {
        /// Sends bytes to a descriptor, and returns how many it took; 0 if it has no room.
        let send: @Sendable (SharedDescriptor, RawSpan) throws(Errno) -> Int
        var sent: @Sendable (_ count: Int, _ isBlocked: Bool) -> Void = { _, _ in }
        var failed: @Sendable (Errno) -> Void = { _ in }
        /// Ends the sending after the last byte, and closes the descriptor.
        var end: @Sendable (SharedDescriptor, Ending, WriteBuffer) -> Void = { descriptor, _, _ in
            descriptor.close()
        }
    }

    /// The ending after the last byte. A later ending replaces an earlier one.
    enum Ending: Comparable {
        case stop
        /// Shuts the socket down for writing.
        case shutDown
        /// Closes the socket gracefully.
        case close
        /// Resets the socket, because the time for closing it is over.
        case reset
    }

    /// How long the rest of a closed stream's bytes may take.
    struct Limits: Sendable {
        /// How long the peer may take no byte. 30 s: long enough for a telephone that changes networks.
        var stallTimeout = Duration.seconds(30)
        /// When all of it is over; nil while the peer may take as long as it likes, because the connection is not closed.
        var end: Deadline?
    }

    fileprivate enum Phase {
        case idle
        /// Bytes are being sent, or about to be: then the sender is not known yet.
        case sending(LoopOwned<WriteBufferSender>?)
    }

    fileprivate struct State {
        /// Closing the stream ends it, and a failure to send cancels it.
        var queue: BoundedQueue<ByteQueue, Errno>
        var phase = Phase.idle
        /// Whether a write found no room: the engine is notified at the low-water mark.
        var isAwaited = false
        var ending = Ending.stop
        /// Nil while the stream is open.
        var limits: Limits?
        /// Whether a secure session has accepted bytes that it cannot send yet: they come behind the queue's.
        var isHolding = false
        /// Called when the kernel has taken the bytes before them, or when there will be no more. Those that wait for the end
        /// of ``isHolding`` have the largest count.
        var flushes = FlushCallbacks()
        /// The descriptor that only the sender uses; nil while there is none left.
        var own: SharedDescriptor?
        var engine: StreamEngine
    }

    /// 1 MiB of a protocol's replies: a peer that reads never leaves this much unread.
    private static let replyLimit = 1 << 20

    fileprivate let state: Mutex<State>
    /// Whether the queue is empty: spares most writes the lock.
    fileprivate let isDrained = Atomic(true)
    /// Whether there was no descriptor left to send bytes with.
    let lacksDescriptor = Atomic(false)
    fileprivate let changed = EventCount()
    private let process = ProcessIdentity.current
    let client: Client

    init(limit: Int, for engine: StreamEngine, by client: Client) {
        state = Mutex(State(queue: BoundedQueue(limit: limit), engine: engine))
        self.client = client
    }

    /// The stream's engine, which is notified of room and of lost bytes.
    var engine: StreamEngine {
        get { state.withLock { $0.engine } }
        set { state.withLock { $0.engine = newValue } }
    }

    var isEmpty: Bool { isDrained.load(ordering: .acquiring) }

    /// Whether the kernel has taken every byte that was accepted.
    var isFlushed: Bool { isEmpty && !state.withLock { $0.isHolding } }

    /// Whether writes go through the buffer: its size is not 0, or it still has bytes from an earlier size.
    var isInUse: Bool { !isEmpty || limit > 0 }

    var limit: Int {
        get { state.withLock { $0.queue.limit } }
        set { state.withLock { $0.queue.limit = newValue } }
    }

    /// Why the bytes could not be sent.
    var failure: Errno? { state.withLock { $0.queue.consumerFailure } }

    // MARK: Room

    /// How many bytes the kernel has not taken.
    var count: Int { isEmpty ? 0 : state.withLock { $0.queue.contents.count } }

    /// Whether a write would be accepted at least in part, or fail.
    var hasRoom: Bool { state.withLock { $0.queue.hasRoom || !$0.queue.isOpen } }

    /// Whether there is enough room to deliver `hasSpaceAvailable`. If not, the engine is refreshed when
    /// there is.
    func requestRoom() -> Room {
        state.withLock { state in
            if state.isAtLowWaterMark { return .found }
            state.isAwaited = true
            return .awaited
        }
    }

    /// Waits until a write would be accepted at least in part, or fail.
    func waitForRoom() {
        _ = wait(until: .distantFuture) { $0.queue.hasRoom || !$0.isSending || !$0.queue.isOpen }
    }

    /// Waits until the kernel has taken every byte.
    func flush(until deadline: Deadline) throws(Errno) {
        let isDone = wait(until: deadline) { $0.isFlushed }
        if let failure { throw failure }
        guard isDone else { throw .timedOut }
    }

    /// Calls `callback` when the kernel has taken every byte that was accepted before, or the sending has failed, or the stream
    /// is closed.
    func whenFlushed(_ callback: FlushCallback) {
        call(callback) { state in
            if state.isFlushed || !state.queue.isOpen { return nil }
            return state.isHolding ? .max : state.acceptedCount
        }
    }

    /// Calls `callback` at the low-water mark, or when the sending has failed or the stream is closed.
    func whenRoom(_ callback: FlushCallback) {
        call(callback) { $0.isAtLowWaterMark ? nil : $0.acceptedCount - $0.queue.limit / 4 }
    }

    /// Calls `callback` once `count` bytes have been taken; at once if that is nil.
    private func call(_ callback: FlushCallback, after count: (borrowing State) -> Int?) {
        let isDone = state.withLock { state in
            guard let count = count(state) else { return true }
            state.flushes.add(callback, at: count)
            return false
        }
        if isDone { callback() }
    }

    /// How many callbacks are still to be called.
    var waitingFlushCount: Int { state.withLock { $0.flushes.waitingCount } }

    fileprivate func callFlushCallbacks() {
        let due = state.withLock { state in
            state.flushes.removeDue(all: state.isFlushed || !state.queue.isOpen)
        }
        for callback in due { callback() }
    }

    /// Notes whether a secure session has accepted bytes that it cannot send yet. A flush waits for them until the stream is
    /// closed.
    ///
    /// Its callbacks are called later, by the streams thread, as the session is locked.
    func setHolding(_ isHolding: Bool) throws(Errno) {
        let loop = try ResidentThread.streams.runLoop()
        state.withLock { state in
            state.isHolding = isHolding && state.queue.isOpen
            if !state.isHolding { state.flushes.limit(to: state.acceptedCount) }
        }
        changed.broadcast()
        if !isHolding { loop.perform { [self] in callFlushCallbacks() } }
    }

    private func wait(until deadline: Deadline, _ condition: (State) -> Bool) -> Bool {
        changed.wait(until: deadline) { state.withLock { condition($0) } ? () : nil } != nil
    }

    // MARK: Bytes

    /// Accepts as many bytes as there is room for, and has them sent.
    ///
    /// - Returns: How many; 0 also when there is no descriptor left to send them with.
    /// - Throws: What sending has failed with, or `canceled` once the stream is closed.
    func accept(
        _ bytes: RawSpan, for shared: SharedDescriptor, isReply: Bool = false
    ) throws(Errno) -> Int {
        if let count = try append(bytes, whileSending: true, isReply) { return count }
        guard let loop = try? ResidentThread.streams.runLoop() else { return 0 }
        let own = shared.duplicate()
        // Bytes that cannot be taken back are sent by the stream's descriptor until there is another.
        lacksDescriptor.store(own == nil, ordering: .relaxed)
        if own == nil, !isReply { return 0 }
        guard let count = try append(bytes, whileSending: false, isReply) else { return 0 }
        state.withLock { $0.own = own }
        PendingOutput.begin()
        loop.perform { [self] in WriteBufferSender(self, of: shared).begin() }
        return count
    }

    /// Accepts all of `bytes`, beyond the limit and even if the stream is closed, because a protocol cannot
    /// take them back.
    ///
    /// - Throws: As ``accept(_:for:isReply:)``, or `noBufferSpace` if there is no room left.
    func acceptReply(_ bytes: RawSpan, for shared: SharedDescriptor) throws(Errno) {
        let count = try accept(bytes, for: shared, isReply: true)
        guard count == bytes.byteCount else { throw .noBufferSpace }
    }

    /// Throws if nothing is accepted any more.
    func checkOpen() throws(Errno) {
        try checkProcess()
        try state.withLock { (state) throws(Errno) in try state.checkOpen() }
    }

    /// A child of fork(2) has no sender: its parent's may have locked the state, and a second one would send bytes twice.
    private func checkProcess() throws(Errno) { if !process.isCurrent { throw .notSupported } }

    /// Appends what there is room for. Nil if that is nothing, or if a sender is not in the expected state:
    /// with one at work the bytes are its own, and without one this makes the caller start it.
    private func append(
        _ bytes: RawSpan, whileSending: Bool, _ isReply: Bool
    ) throws(Errno) -> Int? {
        try checkProcess()
        return try state.withLock { (state) throws(Errno) -> Int? in
            do throws(Errno) { try state.checkOpen() } catch {
                if !isReply || error != .canceled { throw error }
            }
            guard state.isSending == whileSending else { return nil }
            let limit = state.queue.limit + (isReply ? Self.replyLimit : 0)
            let count = state.queue.contents.append(bytes, limit: limit)
            if count < bytes.byteCount { state.isAwaited = true }
            if count > 0 {
                isDrained.store(false, ordering: .releasing)
                if !whileSending { state.phase = .sending(nil) }
            }
            return count > 0 || whileSending ? count : nil
        }
    }

    // MARK: The end

    /// Limits how long the peer may take no byte, or no longer, while the stream is open.
    func setLimits(_ limits: Limits?) {
        let sender = state.withLock { state in
            if state.queue.isOpen { state.limits = limits }
            return state.sender
        }
        sender?.perform { $0.expectProgress() }
    }

    /// Sets what to do after the last byte.
    ///
    /// - Parameter limits: Given when the stream closes.
    /// - Returns: False if no byte is pending, and the caller does it.
    func finish(_ ending: Ending, within limits: Limits? = nil) -> Bool {
        var isAwaited = false
        let (isPending, sender) = state.withLock { state -> (Bool, LoopOwned<WriteBufferSender>?) in
            if let limits {
                state.queue.end()
                state.isHolding = false
                state.limits = limits
                isAwaited = !state.flushes.isEmpty
            }
            guard case .sending(let sender) = state.phase else { return (false, nil) }
            state.ending = max(state.ending, ending)
            return (true, sender)
        }
        changed.broadcast()
        if isAwaited { callFlushCallbacks() }
        sender?.perform { $0.expectProgress() }
        return isPending
    }

    /// The descriptor that only the sender uses.
    var ownDescriptor: SharedDescriptor? { state.withLock { $0.own } }

    /// Takes the descriptor of a stream that is closed, if the sender has none.
    func keepOpen(_ shared: SharedDescriptor) {
        guard ownDescriptor == nil, let kept = shared.duplicate() ?? shared.move() else { return }
        state.withLock { $0.own = kept }
    }

    /// Drops the bytes, because the connection has failed.
    func abandon(_ error: Errno) {
        let (hasLost, sender) = drop(error)
        if hasLost { engine.noteLostBytes(error) }
        callFlushCallbacks()
        sender?.perform { $0.end() }
    }

    /// Drops the bytes, and accepts no more. Returns whether there were any, and the sender.
    private func drop(_ error: Errno) -> (hasLost: Bool, LoopOwned<WriteBufferSender>?) {
        let dropped = state.withLock { state in
            defer { (state.phase, state.isHolding) = (.idle, false) }
            return (state.queue.cancel(error).count > 0, state.sender)
        }
        isDrained.store(true, ordering: .releasing)
        changed.broadcast()
        return dropped
    }
}

// MARK: - For the sender

extension WriteBuffer {
    /// The result of one attempt to send.
    enum Progress {
        /// The peer has to make room; whether it took some bytes now.
        case blocked(afterSome: Bool)
        case done(Ending)
        case failed(Errno)
    }

    /// Takes its sender; false if there is nothing to send any more.
    func begin(_ sender: WriteBufferSender, on loop: RunLoop) -> Bool {
        state.withLock { state in
            guard state.isSending else { return false }
            state.phase = .sending(LoopOwned(sender, on: loop))
            return true
        }
    }

    /// Takes a descriptor for the sender alone; nil if there is none left.
    func takeDescriptor(of shared: SharedDescriptor) -> SharedDescriptor? {
        guard let own = ownDescriptor ?? shared.duplicate() else { return nil }
        state.withLock { $0.own = own }
        return own
    }

    /// How long sending may take; nil while the stream is open.
    var limits: Limits? { state.withLock { $0.limits } }

    /// Sends what the descriptor has room for. After ``Progress/done(_:)`` the sender is not needed any more.
    func send(to descriptor: SharedDescriptor) -> Progress {
        let (progress, sent, isAwaited) = state.withLock { state in
            let before = state.queue.contents.count
            let progress = state.send(to: descriptor, client)
            let sent = before - state.queue.contents.count
            state.flushes.take(sent)
            if state.queue.isEmpty { isDrained.store(true, ordering: .releasing) }
            let isAwaited = state.isAwaited && state.isAtLowWaterMark
            if isAwaited { state.isAwaited = false }
            return (progress, sent, isAwaited)
        }
        if case .blocked = progress { client.sent(sent, true) } else { client.sent(sent, false) }
        changed.broadcast()
        if isAwaited { engine.refresh() }
        callFlushCallbacks()
        if case .blocked = progress { return .blocked(afterSome: sent > 0) }
        return progress
    }

    /// Fails the stream, closed or not: bytes that it accepted are lost.
    func fail(_ error: Errno) {
        _ = drop(error)
        client.failed(error)
        engine.noteLostBytes(error)
        callFlushCallbacks()
    }
}

extension WriteBuffer.State {
    fileprivate var isSending: Bool { if case .sending = phase { true } else { false } }

    fileprivate var sender: LoopOwned<WriteBufferSender>? {
        if case .sending(let sender) = phase { sender } else { nil }
    }

    fileprivate var isFlushed: Bool { queue.isEmpty && !isHolding }

    /// How many bytes the kernel has taken once it has taken those of the queue.
    fileprivate var acceptedCount: Int { flushes.takenCount + queue.contents.count }

    /// Whether no more than a quarter is used: low enough that a delegate is not called for every few bytes
    /// and has room for a whole piece, high enough that the sender does not run out of bytes meanwhile.
    fileprivate var isAtLowWaterMark: Bool { queue.contents.count <= queue.limit / 4 || !queue.isOpen }

    fileprivate func checkOpen() throws(Errno) {
        if let failure = queue.consumerFailure { throw failure }
        if !queue.isOpen { throw .canceled }
    }

    fileprivate mutating func send(to descriptor: SharedDescriptor, _ client: WriteBuffer.Client)
        -> WriteBuffer.Progress
    {
        if let failure = queue.consumerFailure { return .failed(failure) }
        do throws(Errno) {
            try queue.contents.send { (bytes) throws(Errno) in try client.send(descriptor, bytes) }
        } catch {
            return .failed(error)
        }
        guard queue.isEmpty else { return .blocked(afterSome: false) }
        phase = .idle
        return .done(ending)
    }
}
