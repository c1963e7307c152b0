import Synchronization
import SystemPackage

/// What `write` has accepted beyond what the kernel took, for a stream that asked for a write buffer.
///
/// The bytes are sent from the streams thread, so they move whatever the stream's loop does: while it runs in another
/// mode, after the stream was removed from it or closed, and while the process exits.
final class WriteBuffer: Sendable {
    /// How the bytes get to the kernel, and who else learns that they did not.
    @safe
    struct Transport: Sendable {
        /// Sends bytes to a descriptor, and returns how many it took; 0 if it has no room.
        let send: @Sendable (CInt, UnsafeRawBufferPointer) throws(Errno) -> Int
        var failed: @Sendable (Errno) -> Void = { _ in }
    }

    /// What happens after the last byte. A later ending replaces an earlier one.
    enum Ending: Comparable {
        case none
        /// Shuts the socket down for writing.
        case shutDown
        /// Closes the socket gracefully.
        case close
    }

    /// How long the peer of a closed stream may take no byte, unless the stream has a write timeout.
    static let usualPatience: Duration = .seconds(30)

    fileprivate struct State {
        var queue = ByteQueue()
        var limit: Int
        /// Whether a write found the buffer full: the engine is notified at the low-water mark.
        var isAwaited = false
        var ending = Ending.none
        /// How long the peer may take no byte, once the stream is closed.
        var patience: Duration?
        /// Whether a ``WriteBufferSender`` is at work, or about to be.
        var isSending = false
        var sender: LoopBound<WriteBufferSender>?
        var fault: Errno?
    }

    fileprivate let state: Mutex<State>
    /// Whether the queue has no bytes: spares most writes the lock.
    fileprivate let isClear = Atomic(true)
    fileprivate let changed = Condition()
    fileprivate let transport: Transport
    let engine: StreamEngine

    init(limit: Int, for engine: StreamEngine, by transport: Transport) {
        state = Mutex(State(limit: limit))
        self.engine = engine
        self.transport = transport
    }

    var isEmpty: Bool { isClear.load(ordering: .acquiring) }

    /// Whether writes go through here: there is a size, or bytes of one that there was.
    var isInUse: Bool { !isEmpty || limit > 0 }

    var limit: Int {
        get { state.withLock { $0.limit } }
        set { state.withLock { $0.limit = newValue } }
    }

    // MARK: Room

    /// Whether a write would be accepted at least in part.
    var hasRoom: Bool { state.withLock { $0.queue.count < $0.limit || $0.fault != nil } }

    /// Whether the delegate may be told of room. If not, the engine is notified when it may.
    func checkRoom() -> Room {
        state.withLock { state in
            if state.isAtLowWaterMark { return .found }
            state.isAwaited = true
            return .awaited
        }
    }

    /// Whether a write that found the buffer full should be tried again.
    func takeRoom() -> Bool {
        state.withLock { state in
            guard state.isAwaited, state.isAtLowWaterMark else { return false }
            state.isAwaited = false
            return true
        }
    }

    /// Waits until a write would be accepted at least in part, or the bytes cannot be sent.
    func waitForRoom() {
        _ = wait(until: .distantFuture) { $0.queue.count < $0.limit || !$0.isSending }
    }

    /// Waits until the kernel has taken every byte.
    func flush(until deadline: Deadline) throws(Errno) {
        let isDone = wait(until: deadline) { $0.queue.count == 0 || $0.fault != nil }
        if let fault = state.withLock({ $0.fault }) { throw fault }
        guard isDone else { throw .timedOut }
    }

    private func wait(until deadline: Deadline, _ condition: (State) -> Bool) -> Bool {
        while true {
            let generation = changed.generation
            if state.withLock({ condition($0) }) { return true }
            guard changed.wait(after: generation, until: deadline) else { return false }
        }
    }

    // MARK: Bytes

    /// Accepts as many bytes as there is room for, and has them sent.
    ///
    /// - Returns: How many; 0 also when there is no descriptor left to send them with.
    func accept(_ bytes: UnsafeRawBufferPointer, for holder: DescriptorHolder) -> Int {
        guard !beginSending() else { return unsafe append(bytes) }
        guard let loop = try? ResidentThread.streams.runLoop(), let own = holder.duplicate() else {
            state.withLock { $0.isSending = false }
            return 0
        }
        let count = unsafe append(bytes)
        PendingOutput.begin()
        loop.perform { [self] in WriteBufferSender(self, own).begin() }
        return count
    }

    /// True if a sender is at work already.
    private func beginSending() -> Bool {
        state.withLock { state in
            defer { state.isSending = true }
            return state.isSending
        }
    }

    private func append(_ bytes: UnsafeRawBufferPointer) -> Int {
        state.withLock { state in
            guard state.fault == nil else { return 0 }
            let count = unsafe state.queue.append(bytes, limit: state.limit)
            if count > 0 { isClear.store(false, ordering: .releasing) }
            if count < bytes.count { state.isAwaited = true }
            return count
        }
    }

    /// Has `ending` happen after the last byte.
    ///
    /// - Parameter patience: How long the peer may take no byte from now on; nil while the stream is open.
    /// - Returns: False if no byte is waiting, and so the caller does it.
    func finish(_ ending: Ending, patience: Duration? = nil) -> Bool {
        let (isPending, sender) = state.withLock { state -> (Bool, LoopBound<WriteBufferSender>?) in
            guard state.isSending else { return (false, nil) }
            state.ending = max(state.ending, ending)
            state.patience = patience ?? state.patience
            return (true, state.sender)
        }
        if let sender { perform(on: sender) { $0.expectProgress() } }
        return isPending
    }

    /// Drops the bytes, because the connection has failed.
    func abandon(_ error: Errno) {
        let sender = state.withLock { $0.fail(error) }
        changed.announce()
        if let sender { perform(on: sender) { $0.end() } }
    }

    private func perform(
        on sender: LoopBound<WriteBufferSender>, _ body: @escaping @Sendable (WriteBufferSender) -> Void
    ) {
        if let loop = try? ResidentThread.streams.runLoop() { loop.perform { body(sender.value) } }
    }
}

// MARK: - For the sender

extension WriteBuffer {
    /// What has come of sending.
    enum Progress {
        case blocked
        case done(Ending)
        case failed(Errno)
    }

    /// Takes its sender; false if there is nothing to send any more.
    func begin(_ sender: WriteBufferSender, on loop: RunLoop) -> Bool {
        state.withLock { state in
            guard state.fault == nil else { return false }
            state.sender = LoopBound(sender, home: loop.identity)
            return true
        }
    }

    /// How long the peer may take no byte; nil while the stream is open.
    var patience: Duration? { state.withLock { $0.patience } }

    /// Sends what the descriptor has room for. After ``Progress/done(_:)`` the sender is not needed any more.
    func send(to number: CInt) -> Progress {
        let (progress, isAwaited) = state.withLock { state in
            let progress = state.send(to: number, transport)
            if state.queue.count == 0 { isClear.store(true, ordering: .releasing) }
            return (progress, state.isAwaited && state.isAtLowWaterMark)
        }
        changed.announce()
        if isAwaited { engine.refresh() }
        return progress
    }

    /// Fails the stream, closed or not: bytes that it accepted are lost.
    func fail(_ error: Errno) {
        _ = state.withLock { $0.fail(error) }
        changed.announce()
        transport.failed(error)
        engine.noteLostBytes(error)
    }
}

extension WriteBuffer.State {
    /// Whether no more than a quarter is used: low enough that a delegate is not called for every few bytes and has
    /// room for a whole piece, high enough that the sender does not run out of bytes meanwhile.
    var isAtLowWaterMark: Bool { queue.count <= limit / 4 || fault != nil }

    fileprivate mutating func send(to number: CInt, _ transport: WriteBuffer.Transport)
        -> WriteBuffer.Progress
    {
        if let fault { return .failed(fault) }
        do throws(Errno) {
            try unsafe queue.send { (bytes) throws(Errno) in try unsafe transport.send(number, bytes) }
        } catch {
            return .failed(error)
        }
        guard queue.count == 0 else { return .blocked }
        (isSending, sender) = (false, nil)
        return .done(ending)
    }

    /// Drops the bytes, and lets the next write find out why.
    fileprivate mutating func fail(_ error: Errno) -> LoopBound<WriteBufferSender>? {
        if fault == nil { fault = error }
        queue.removeAll()
        defer { (isSending, sender) = (false, nil) }
        return sender
    }
}
