import Synchronization
import SystemPackage

/// Sends whole messages to a connection, a pipe, a terminal or a file: of any number of threads and tasks, without waiting, and
/// within a bound of memory.
///
/// ```swift
/// let updates = SendQueue(to: connection, limit: 65_536, overflow: .dropOldest)
/// try updates.send("price 17\n")
/// ```
///
/// What the stream does not accept at once waits in the queue, at most ``limit`` bytes, and is sent in the background, whatever
/// any loop does. Messages are sent in order, and never in part, unless the stream fails. A log is one of these:
///
/// ```swift
/// let log = SendQueue(to: OutputStream(path: "server.log", append: true), overflow: .dropOldest)
/// ```
///
/// A queue that nothing refers to still sends its messages, and so does an exiting process, for up to five seconds. Once the
/// stream has failed or is closed, what waits is dropped, and calls throw its error.
///
/// Any thread may use a queue.
public final class SendQueue: Sendable {
    /// What a queue does with a message for which it has no room.
    @nonexhaustive public enum Overflow: Sendable, Hashable {
        /// Throw ``IOError`` with `Errno.noBufferSpace`.
        case fail
        /// Drop the messages that have waited longest; the new one if that makes no room.
        case dropOldest
    }

    /// The most bytes that wait, besides those that the stream has accepted: see ``Connection/Options/writeBufferSize``.
    public let limit: Int
    /// What happens to a message for which there is no room.
    public let overflow: Overflow

    let state: Mutex<State>
    private let engine: StreamEngine
    /// Whose turns to write the queue takes; nil for a stream.
    private let connection: Connection?
    /// Keeps it open.
    private let stream: Transferred<OutputStream>?

    /// A queue of messages to a connection, which is open.
    ///
    /// The queue takes a turn for a message as ``Connection/write(_:timeout:)-([UInt8],_)`` does, and keeps it until the
    /// connection has accepted all of it. Meanwhile ``Connection/send(_:)-([UInt8])`` throws `Errno.resourceBusy`.
    /// ``Connection/close()`` drops what waits: await ``flush(timeout:)`` before.
    ///
    /// - Parameters:
    ///   - connection: An open connection, with or without a delegate.
    ///   - limit: The most bytes that wait in the queue.
    ///   - overflow: What happens to a message for which there is no room.
    /// - Precondition: `limit` is positive.
    public init(to connection: Connection, limit: Int = 1 << 20, overflow: Overflow = .fail) {
        require(limit > 0, "SendQueue.limit must be positive, not \(limit).")
        (self.limit, self.overflow, self.connection, stream) = (limit, overflow, connection, nil)
        engine = connection.halves.output.engine
        state = Mutex(State(limit: limit))
    }

    /// A queue of messages to a stream, which it opens, and which nothing else uses.
    ///
    /// - Parameters:
    ///   - stream: A file, a pipe, a terminal or a socket. It gets a ``OutputStream/writeBufferSize`` of 64 KiB if it has none.
    ///   - limit: The most bytes that wait in the queue.
    ///   - overflow: What happens to a message for which there is no room.
    /// - Precondition: `limit` is positive.
    public init(to stream: sending OutputStream, limit: Int = 1 << 20, overflow: Overflow = .fail) {
        require(limit > 0, "SendQueue.limit must be positive, not \(limit).")
        (self.limit, self.overflow, connection) = (limit, overflow, nil)
        engine = stream.engine
        state = Mutex(State(limit: limit))
        stream.open()
        if stream.writeBufferSize == 0 { stream.writeBufferSize = 65_536 }
        self.stream = Transferred(stream)
    }

    // MARK: Sending

    /// Sends all of `message`, after those before it, or none. Does not wait.
    ///
    /// - Throws: ``IOError`` with `Errno.noBufferSpace` if there is no room and ``overflow`` is ``Overflow/fail``;
    ///   `Errno.messageTooLong` if there never is, `Errno.socketNotConnected` before the connection is open. Or the error of
    ///   the stream.
    public func send(_ message: [UInt8]) throws { try send(Message(bytes: message, key: nil)) }

    /// Sends a text in UTF-8; otherwise as ``send(_:)-([UInt8])``.
    public func send(_ text: String) throws { try send(Array(text.utf8)) }

    /// Sends `message` in the place of the one with the same key that waits, if there is one: the receiver only wants the
    /// latest. Otherwise as ``send(_:)-([UInt8])``.
    public func send(_ message: [UInt8], replacing key: some Hashable & Sendable) throws {
        try send(Message(bytes: message, key: Message.Key(value: key)))
    }

    /// Waits until there is room for `message`, and then sends it. Tasks get room in the order of their calls.
    ///
    /// - Parameters:
    ///   - message: The bytes.
    ///   - timeout: How long to wait for room; nil for no limit.
    /// - Throws: ``IOError``, `Errno.messageTooLong` if there is never room; the error of the stream; `CancellationError`.
    ///   Nothing is sent then.
    nonisolated(nonsending) public func write(_ message: [UInt8], timeout: Duration? = nil) async throws {
        try checkOpen(message.count)
        switch state.withLock({ $0.put(Message(bytes: message, key: nil)) }) {
        case .sends: return drain()
        case .waits, .replaces: return
        case .hasNoRoom: break
        }
        try await wait(timeout, #isolation) { id, continuation in
            let put = state.withLock {
                $0.putLater(Writer(id: id, bytes: message, continuation: continuation))
            }
            if put != .hasNoRoom { continuation.resume(returning: nil) }
            if put == .sends { drain() }
        }
        if let failure = state.withLock({ $0.failure }) { throw failure }
    }

    /// Waits until the kernel has taken the messages that were sent before, except those that were dropped.
    ///
    /// - Parameter timeout: How long to wait; nil for no limit.
    /// - Throws: ``IOError``; the error of the stream; `CancellationError`.
    nonisolated(nonsending) public func flush(timeout: Duration? = nil) async throws {
        try await wait(timeout, #isolation) { id, continuation in
            if state.withLock({ $0.flushLater(id, continuation) }) { whenFlushed(end: id) }
        }
        if let failure = state.withLock({ $0.failure }) { throw failure }
        _ = try engine.isFlushed()
    }

    // MARK: What waits

    /// How many bytes wait in the queue.
    public var waitingByteCount: Int { state.withLock { $0.byteCount } }

    /// How many messages have been dropped: for later ones, or because the stream has failed or was closed.
    public var droppedCount: Int { state.withLock { $0.droppedCount } }

    /// How many messages have been replaced by later ones with the same key before they were sent.
    public var replacedCount: Int { state.withLock { $0.replacedCount } }
}

extension SendQueue {
    private func send(_ message: Message) throws {
        try checkOpen(message.bytes.count)
        let put = state.withLock { state in
            let put = state.put(message)
            if put == .hasNoRoom, overflow == .dropOldest { return state.putForOldest(message) }
            return put
        }
        switch put {
        case .sends:
            drain()
            if let failure = state.withLock({ $0.failure }) { throw failure }
        case .waits, .replaces: break
        case .hasNoRoom: throw engine.failure(.noBufferSpace)
        }
    }

    private func checkOpen(_ count: Int) throws {
        if let failure = state.withLock({ $0.failure }) { throw failure }
        if count > limit { throw engine.failure(.messageTooLong) }
        switch engine.status {
        case .notOpen, .opening: throw engine.failure(.socketNotConnected)
        case .closed, .error: throw engine.failure
        case .open, .reading, .writing, .atEnd: break
        }
    }

    // MARK: Writing

    /// Writes what waits until the stream has no room. Called by the thread that has made the phase ``State/Phase/sending``.
    private func drain() {
        while let (bytes, position, hasTurn) = state.withLock({ $0.next() }) {
            guard hasTurn || takeTurn() else { return }
            do {
                let count = try bytes.withBytes { try write($0.extracting(droppingFirst: position)) }
                if state.withLock({ $0.advance(by: count) }) { connection?.turns.pass() }
                admit()
                if position + count < bytes.count, !findRoom(bytes, position + count) { return }
            } catch {
                return fail(error)
            }
        }
    }

    /// Takes the connection's turn. If other code has it, draining continues with its end.
    private func takeTurn() -> Bool {
        guard let connection else { return true }
        let isTaken = connection.turns.takeOrCall { [self] in
            state.withLock { $0.hasTurn = true }
            drain()
        }
        if isTaken { state.withLock { $0.hasTurn = true } }
        return isTaken
    }

    /// Writes without waiting. What the kernel does not take now is kept by the stream, as far as it has a buffer.
    private func write(_ bytes: RawSpan) throws -> Int {
        let count = try engine.writeIfReady(bytes) ?? 0
        guard count < bytes.byteCount, let connection, !connection.socket.bufferSlot.hasBuffer else {
            return count
        }
        connection.halves.output.writeBufferSize = max(connection.writeBufferSize, Self.leastBuffer)
        return count + (try engine.writeIfReady(bytes.extracting(droppingFirst: count)) ?? 0)
    }

    /// Without a buffer, a connection would need a thread that waits for room.
    private static let leastBuffer = 16_384

    /// Whether there may be room by now. If not, draining continues when the kernel has taken what the stream has accepted.
    private func findRoom(_ bytes: [UInt8], _ position: Int) -> Bool {
        let isStuck = state.withLock { $0.beginWait() }
        if isStuck {
            // The stream has no buffer, whose end would be reported.
            DispatchWorkers.run { [self] in writeWaiting(bytes, position) }
            return false
        }
        engine.backend.whenFlushed(
            FlushCallback { [self] in
                if state.withLock({ $0.endWait() }) { drain() }
            })
        return state.withLock { $0.isRoomFound() }
    }

    private func writeWaiting(_ bytes: [UInt8], _ position: Int) {
        let count = bytes.withBytes { engine.write($0.extracting(droppingFirst: position)) }
        guard count > 0 else {
            if engine.isOpen { connection?.socket.fail(.tooManyOpenFiles, on: nil) }
            let error: any Error = engine.isOpen ? engine.failure(.noBufferSpace) : engine.failure
            return fail(error)
        }
        if state.withLock({ $0.advance(by: count) }) { connection?.turns.pass() }
        admit()
        drain()
    }

    /// Gives the room that there is by now to the tasks that wait for it, and ends their flushes.
    private func admit() {
        guard state.withLock({ $0.hasWaiters }) else { return }
        let (admitted, flushed) = state.withLock { ($0.admit(), $0.takeFlushed()) }
        for waiter in admitted { waiter.continuation.resume(returning: nil) }
        for id in flushed { whenFlushed(end: id) }
    }

    /// Ends the flush `id` when the kernel has taken all that the stream has accepted.
    private func whenFlushed(end id: Int) {
        engine.backend.whenFlushed(FlushCallback { [self] in end(id, nil) })
    }

    private func fail(_ error: any Error) {
        let (hadTurn, waiters) = state.withLock { $0.fail(error) }
        if hadTurn { connection?.turns.pass() }
        for waiter in waiters { waiter.resume(returning: .brokenPipe) }
    }

    // MARK: Waiting tasks

    nonisolated(nonsending) private func wait(
        _ timeout: Duration?, _ isolation: (any Actor)?,
        _ begin: (Int, CheckedContinuation<Errno?, Never>) -> Void
    ) async throws {
        let id = state.withLock { $0.newID() }
        do throws(Errno) {
            let (loop, _) = try RunLoop.place(of: isolation, orOn: engine.scheduledPlace?.loop)
            try await suspendTask(until: timeout.deadline(on: loop), on: loop) { continuation in
                begin(id, continuation)
            } end: { [self] reason in
                end(id, reason)
            }
        } catch {
            if let failure = state.withLock({ $0.failure }) { throw failure }
            throw error == .canceled ? CancellationError() : engine.failure(.endOfWait(error))
        }
    }

    private func end(_ id: Int, _ reason: Errno?) {
        let waiter = state.withLock { $0.removeWaiter(id) }
        waiter?.resume(returning: reason)
    }
}
