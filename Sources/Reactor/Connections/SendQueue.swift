import Synchronization
import SystemPackage

/// Queues whole messages for a connection, a pipe, a terminal or a file. Any thread or task may send; sending never blocks.
///
/// ```swift
/// let updates = SendQueue(to: connection, limit: 65_536, overflow: .dropOldest)
/// try updates.send("price 17\n")
/// ```
///
/// Messages that the stream does not accept at once wait in the queue, at most ``limit`` bytes of them, and are sent in the
/// background, in whatever mode the loops run. They are sent in order, and never in part, unless the stream fails or is closed.
/// A log is one of these:
///
/// ```swift
/// let log = SendQueue(to: OutputStream(path: "server.log", append: true), overflow: .dropOldest)
/// ```
///
/// A queue that is released still sends its messages, and keeps its connection or stream open for that. If the peer then takes
/// no byte for the ``ConnectionOptions/writeTimeout``, or 30 seconds, the connection or the stream fails. An exiting process
/// waits for the messages, for up to five seconds. Once the stream has failed or is closed, queued messages are dropped, and
/// calls throw its error. ``finish(timeout:)`` ends the output after the last message. A child of fork(2) cannot use its
/// parent's queue.
public final class SendQueue: Sendable {
    /// What a queue does with a message for which it has no room.
    @nonexhaustive public enum Overflow: Sendable, Hashable {
        /// Throw ``IOError`` with `Errno.noBufferSpace`.
        case fail
        /// Drop the oldest queued messages; the new one if that does not make enough room.
        case dropOldest
    }

    /// How many bytes may wait, besides those that the stream has accepted: see ``ConnectionOptions/writeBufferSize``. A
    /// message counts as 64 at least.
    public let limit: Int
    /// What happens to a message for which there is no room.
    public let overflow: Overflow

    private let sender: Sender
    private let process = ProcessIdentity.current

    private var engine: StreamEngine { sender.engine }
    private var connection: Connection? { sender.connection }

    /// A queue of messages to a connection, which is open, or was accepted: then the first message opens it. While it is
    /// connecting, or shaking hands, messages are refused: await ``Connection/open()`` before.
    ///
    /// The queue takes a turn for a message as ``Connection/write(_:timeout:)-([UInt8],_)`` does, and keeps it until the
    /// connection has accepted all of it. Meanwhile ``Connection/send(_:)-([UInt8])`` throws ``IOError`` with
    /// `Errno.resourceBusy`: a connection with a queue sends everything through it. ``Connection/close()``,
    /// ``Connection/finish(timeout:)`` and the return of a server's closure, also in a graceful shutdown, drop what waits, and
    /// cut the message that is being sent: await ``flush(timeout:)`` or ``finish(timeout:)`` of the queue before.
    ///
    /// - Parameters:
    ///   - connection: A connection, with or without a delegate.
    ///   - limit: The maximum number of bytes that wait in the queue.
    ///   - overflow: What happens to a message for which there is no room.
    /// - Precondition: `limit` is at least 64.
    public init(to connection: Connection, limit: Int = 1 << 20, overflow: Overflow = .fail) {
        require(limit >= Self.leastCost, "SendQueue.limit must be at least \(Self.leastCost), not \(limit).")
        (self.limit, self.overflow) = (limit, overflow)
        sender = Sender(to: connection, limit: limit)
    }

    /// A queue of messages to a stream, which it opens, and which nothing else uses.
    ///
    /// - Parameters:
    ///   - stream: A file, a pipe or a terminal. It gets a ``OutputStream/writeBufferSize`` of 64 KiB if it has none.
    ///   - limit: The maximum number of bytes that wait in the queue.
    ///   - overflow: What happens to a message for which there is no room.
    /// - Precondition: `limit` is at least 64.
    public init(to stream: sending OutputStream, limit: Int = 1 << 20, overflow: Overflow = .fail) {
        require(limit >= Self.leastCost, "SendQueue.limit must be at least \(Self.leastCost), not \(limit).")
        (self.limit, self.overflow) = (limit, overflow)
        stream.open()
        if stream.writeBufferSize == 0 { stream.writeBufferSize = 65_536 }
        sender = Sender(to: stream, limit: limit)
    }

    deinit { if process.isCurrent { sender.queueReleased() } }

    // MARK: Sending

    /// Sends all of `message`, after those before it, or none. Does not wait.
    ///
    /// - Throws: ``IOError`` with `Errno.noBufferSpace` if there is no room and ``overflow`` is ``Overflow/fail``;
    ///   `Errno.messageTooLong` if there never is, `Errno.socketNotConnected` before the connection is open. Or the error of
    ///   the stream.
    public func send(_ message: [UInt8]) throws { try send(Message(bytes: message, key: nil)) }

    /// Sends a text in UTF-8; otherwise as ``send(_:)-([UInt8])``.
    public func send(_ text: String) throws { try send(Array(text.utf8)) }

    /// Replaces the queued message with the same key, if there is one, so that the receiver gets only the latest. Otherwise
    /// sends it as ``send(_:)-([UInt8])``.
    ///
    /// Keys are compared, hashed and released with the queue locked: `==`, `hash(into:)` and `deinit` of a key must not use the
    /// queue.
    public func send(_ message: [UInt8], replacing key: some Hashable & Sendable) throws {
        try send(Message(bytes: message, key: Message.Key(value: key)))
    }

    /// Waits until there is room for `message`, and then sends it. Tasks get room in the order of their calls. Of a queue that
    /// drops the oldest, messages that others send meanwhile get it first.
    ///
    /// - Parameters:
    ///   - message: The bytes.
    ///   - timeout: How long to wait for room; nil for no limit.
    /// - Throws: ``IOError``, `Errno.messageTooLong` if there is never room; the error of the stream; `CancellationError`.
    ///   Nothing is sent then.
    nonisolated(nonsending) public func write(_ message: [UInt8], timeout: Duration? = nil) async throws {
        let message = Message(bytes: message, key: nil)
        try Task.checkCancellation()
        try checkOpen(message)
        let (put, isTurnOver, failure) = sender.state.withLock {
            ($0.put(message), $0.isTurnOver(), $0.failure)
        }
        if let failure { throw failure }
        switch put {
        case .sends: try sender.drainThenCheck()
        case .waits: break
        case .comesTooLate: throw engine.failure(.brokenPipe)
        case .hasNoRoom: return try await writeLater(message, timeout)
        }
        // Lets the loop pass, though there is always room.
        if isTurnOver { await Task.yield() }
    }

    nonisolated(nonsending) private func writeLater(_ message: Message, _ timeout: Duration?) async throws {
        var isLate = false
        try await waiting(timeout, #isolation) { (deadline, place) throws(Errno) in
            try await suspendTask(until: deadline, at: place) { wait in
                let put = sender.state.withLock { $0.putLater(Writer(message: message, wait: wait)) }
                if put != .hasNoRoom { wait.end() }
                if put == .sends { sender.drain() }
                isLate = put == .comesTooLate
            }
        }
        if let failure = sender.failure { throw failure }
        if isLate { throw engine.failure(.brokenPipe) }
    }

    /// Waits until the kernel has taken the messages that were sent before, except those that were dropped.
    ///
    /// - Parameter timeout: How long to wait; nil for no limit.
    /// - Throws: ``IOError``; the error of the stream; `CancellationError`.
    nonisolated(nonsending) public func flush(timeout: Duration? = nil) async throws {
        try await waiting(timeout, #isolation) { (deadline, place) throws(Errno) in
            try await flush(until: deadline, at: place)
        }
        if let failure = sender.failure { throw failure }
        _ = try engine.isFlushed()
    }

    nonisolated(nonsending) private func flush(until deadline: Deadline?, at place: TaskPlace)
        async throws(Errno)
    {
        try await waitForFlush(until: deadline, at: place) { callback in
            if sender.state.withLock({ $0.flushLater(callback) }) { engine.backend.whenFlushed(callback) }
        }
    }

    /// Waits as ``flush(timeout:)``, and ends the output: the receiver reads the end. A file is closed. Messages that are sent
    /// after the call are refused, with `Errno.brokenPipe`.
    ///
    /// - Parameter timeout: How long to wait; nil for no limit. After it the output stays open, and messages are accepted
    ///   again.
    /// - Throws: As ``flush(timeout:)``.
    nonisolated(nonsending) public func finish(timeout: Duration? = nil) async throws {
        sender.state.withLock { $0.enderCount += 1 }
        do {
            try await waiting(timeout, #isolation) { (deadline, place) throws(Errno) in
                // Tasks that wait for room put their messages behind the flush.
                repeat { try await flush(until: deadline, at: place) } while hasMessages
                try await connection?.turns.take(until: deadline, at: place)
            }
            defer { connection?.turns.pass() }
            if let failure = sender.failure { throw failure }
            if engine.status != .closed, engine.status != .notOpen { _ = try engine.isFlushed() }
            try end()
        } catch {
            sender.state.withLock { $0.enderCount -= 1 }
            throw error
        }
        connection?.closeAfterBothEnds()
    }

    private var hasMessages: Bool { sender.state.withLock { $0.failure == nil && !$0.isEmpty } }

    /// Ends the output in the turn of the queue.
    private func end() throws {
        if let connection { try connection.endOutput() } else { engine.close(evenUnopened: true) }
    }

    // MARK: What waits

    /// How many bytes wait in the queue. A message counts as 64 at least.
    public var waitingByteCount: Int { sender.state.withLock { $0.cost } }

    /// How many messages have been dropped: for later ones, or because the stream has failed or was closed.
    public var droppedCount: Int { sender.state.withLock { $0.droppedCount } }

    /// How many messages have been replaced by later ones with the same key before they were sent.
    public var replacedCount: Int { sender.state.withLock { $0.replacedCount } }
}

extension SendQueue {
    /// The least that a message takes of the limit.
    static let leastCost = 64

    private func send(_ message: Message) throws {
        try checkOpen(message)
        let (put, failure) = sender.state.withLock { state in
            var put = state.put(message)
            if put == .hasNoRoom, overflow == .dropOldest { put = state.putForOldest(message) }
            return (put, state.failure)
        }
        if let failure { throw failure }
        switch put {
        case .sends: try sender.drainThenCheck()
        case .waits: break
        case .comesTooLate: throw engine.failure(.brokenPipe)
        case .hasNoRoom: throw engine.failure(.noBufferSpace)
        }
    }

    private func checkOpen(_ message: Message) throws {
        // Before the lock, which another thread may have held at fork(2).
        if !process.isCurrent { throw engine.failure(.notSupported) }
        if message.cost > limit { throw sender.failure ?? engine.failure(.messageTooLong) }
        if engine.status == .notOpen, let connection, !connection.socket.needsSocket {
            connection.openHalves()
        }
        switch engine.status {
        case .notOpen, .opening: throw engine.failure(.socketNotConnected)
        case .closed, .error: throw sender.failure ?? engine.failure
        case .open, .reading, .writing, .atEnd: break
        }
    }

    // MARK: Waiting tasks

    nonisolated(nonsending) private func waiting(
        _ timeout: Duration?, _ isolation: (any Actor)?,
        _ wait: nonisolated(nonsending) (Deadline?, TaskPlace) async throws(Errno) -> Void
    ) async throws {
        do throws(Errno) {
            let place = try RunLoop.place(of: isolation, orOn: engine.scheduledPlace?.loop)
            try await wait(timeout.deadline(on: place.loop), place)
        } catch {
            // The next in line may fit in the room that this one did not have.
            sender.state.withLock { state in
                state.removeEnded()
                state.admit()
            }
            if let failure = sender.failure { throw failure }
            throw error == .canceled ? CancellationError() : engine.failure(.endOfWait(error))
        }
    }
}
