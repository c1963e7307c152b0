import Synchronization

/// Receives the events of connections, on the thread of a run loop.
///
/// The peer's end closes nothing: the delegate ends its own direction with ``Connection/sendEnd()``, as below, or calls
/// ``Connection/close()``. A delegate that ignores ``Connection/Event/endEncountered`` keeps its connection, with its
/// descriptor: the ``ConnectionOptions/idleTimeout`` does not count after the peer's end, unless bytes wait for the peer.
///
/// ```swift
/// final class Echo: ConnectionDelegate {
///     func connection(_ connection: Connection, handle event: Connection.Event) {
///         switch event {
///         case .hasBytesAvailable, .hasSpaceAvailable:
///             try? connection.send(connection.receive(upTo: connection.writableCount))
///         case .endEncountered: try? connection.sendEnd()
///         default: break
///         }
///     }
/// }
/// ```
public protocol ConnectionDelegate: AnyObject {
    /// Called for one event of `connection`.
    ///
    /// It may use the connection and others in any way, and run the loop again. No other event of the connection is delivered
    /// before it returns.
    func connection(_ connection: Connection, handle event: Connection.Event)
}

extension Connection {
    /// What has happened to a connection, for its delegate.
    @nonexhaustive
    public enum Event: Sendable {
        /// The connection is open. Once, before any other event but an error.
        case openCompleted
        /// There are bytes to receive, or the end, which ``Connection/receive(upTo:)`` then finds. Delivered again only after a
        /// read.
        case hasBytesAvailable
        /// There is room to send. Delivered again only after a write.
        case hasSpaceAvailable
        /// The peer has ended its direction. Sending continues, and the connection stays open until the delegate ends it too.
        case endEncountered
        /// The connection has failed, and is closed when the delegate returns. The last event.
        case errorOccurred(any Error)
    }

    /// Opens the connection, and delivers its events to `delegate`, on the calling thread's loop.
    ///
    /// The connection keeps itself and the delegate until it is closed, has failed or has ended in both directions, or until
    /// the loop's thread ends. A connection that was closed before delivers no event, and keeps nothing.
    ///
    /// - Parameters:
    ///   - delegate: Receives the events, on this thread, and is released there.
    ///   - mode: The mode to deliver them in; the common modes unless another is named.
    /// - Precondition: The connection has not been opened.
    @available(*, noasync, message: "tasks read and write without a delegate")
    public func open(delegate: any ConnectionDelegate, forMode mode: RunLoop.Mode = .common) {
        let status = halves.input.streamStatus
        if status == .closed || status == .error { return }
        require(
            status == .notOpen,
            "Connection.open(delegate:) was called on a connection that has been opened.")
        let loop = RunLoop.ofCallingThread
        let delivery = ConnectionDelivery(of: self, to: delegate)
        (halves.input.delegate, halves.output.delegate) = (delivery, delivery)
        halves.input.engine.schedule(in: loop, mode, keeping: delivery)
        halves.output.engine.schedule(in: loop, mode)
        halves.input.open()
        halves.output.open()
    }

    // MARK: Without waiting

    /// Returns up to `count` bytes that have arrived, without waiting.
    ///
    /// At the end this finds it, and ``Event/endEncountered`` follows.
    ///
    /// - Returns: Empty if no bytes have arrived, at the end, or after a failure. The next event says which.
    public func receive(upTo count: Int = InputStream.defaultChunkSize) -> [UInt8] {
        var bytes: [UInt8] = []
        receive(into: &bytes, upTo: count)
        return bytes
    }

    /// Appends up to `count` bytes that have arrived to `buffer`, and waits for none; otherwise as ``receive(upTo:)``.
    ///
    /// A buffer whose capacity is kept is not allocated again for each event.
    ///
    /// - Returns: The number of bytes.
    @discardableResult
    public func receive(into buffer: inout [UInt8], upTo count: Int = InputStream.defaultChunkSize) -> Int {
        guard count > 0 else { return 0 }
        hasReceived.store(true, ordering: .relaxed)
        return (try? halves.input.engine.readIfReady(&buffer, upTo: count)) ?? nil ?? 0
    }

    /// How many bytes ``send(_:)-([UInt8])`` accepts now.
    public var writableCount: Int {
        guard halves.output.engine.isOpen, socket.channel?.isEstablished ?? true else { return 0 }
        return capacity(beside: socket.bufferSlot.buffer?.count ?? 0)
    }

    /// How many bytes can be sent when `count` bytes wait.
    private func capacity(beside count: Int) -> Int {
        let room = writeBufferSize - count
        return max(socket.channel == nil ? room : room - SecureChannel.overhead(of: room), 0)
    }

    /// Sends all of `bytes`, or none: what the kernel does not take now waits in the connection, and is sent in the background.
    /// Any thread.
    ///
    /// - Throws: ``IOError`` with `Errno.noBufferSpace` if there are more bytes than ``writableCount``: then an event for space
    ///   follows. `Errno.messageTooLong` if there are more than it accepts when nothing waits, `Errno.resourceBusy` while a
    ///   task writes or finishes, `Errno.socketNotConnected` before the connection is open. `Errno.tooManyOpenFiles`, and the
    ///   connection has failed, if the process has no descriptor left to send the rest by. Or the error of the connection.
    public func send(_ bytes: [UInt8]) throws { try bytes.withBytes { bytes throws in try send(bytes) } }

    /// Sends bytes that it borrows, such as a part of an array; otherwise as ``send(_:)-([UInt8])``.
    public func send(_ bytes: RawSpan) throws {
        try withTurn { try sendWhole(bytes) }
    }

    /// Sends a text in UTF-8; otherwise as ``send(_:)-([UInt8])``.
    public func send(_ text: String) throws { try send(Array(text.utf8)) }

    /// Ends the output once everything that was sent has left; bytes from the peer are still received. Does nothing if the
    /// output has ended. Any thread.
    ///
    /// - Throws: ``IOError`` with `Errno.resourceBusy` while a task writes or finishes, `Errno.socketNotConnected` before the
    ///   connection is open, or the error of the connection.
    public func sendEnd() throws {
        try withTurn { try endOutput() }
        closeAfterBothEnds()
    }

    /// Ends the output in the caller's turn.
    func endOutput() throws {
        let output = halves.output
        if output.engine.isClosed { throw error ?? output.engine.failure(.badFileDescriptor) }
        if output.streamStatus != .atEnd { try output.shutDown() }
    }

    /// Closes the connection of a delegate once both directions have ended.
    func closeAfterBothEnds() {
        if peerHasEnded.load(ordering: .sequentiallyConsistent), halves.output.streamStatus == .atEnd {
            close()
        }
    }

    /// Calls `body`, which writes without waiting, unless a task writes or the connection is not open yet.
    private func withTurn(_ body: () throws -> Void) throws {
        let engine = halves.output.engine
        switch engine.status {
        case .notOpen, .opening: throw engine.failure(.socketNotConnected)
        default: break
        }
        var next: (@Sendable () -> Void)?
        // A queue's sending, which may release a client's keys.
        defer { next?() }
        try sending.withLock { _ in
            guard turns.takeIfFree() else { throw engine.failure(.resourceBusy) }
            defer { next = turns.passLater() }
            try body()
        }
    }

    private func sendWhole(_ bytes: RawSpan) throws {
        let engine = halves.output.engine
        guard bytes.byteCount <= capacity(beside: 0) else { throw engine.failure(.messageTooLong) }
        guard bytes.byteCount <= writableCount || !engine.isOpen else {
            requestSpace()
            throw engine.failure(.noBufferSpace)
        }
        let count = try engine.writeIfReady(bytes) ?? 0
        guard count < bytes.byteCount else { return }
        halves.output.writeBufferSize = writeBufferSize
        let rest = try engine.writeIfReady(bytes.extracting(droppingFirst: count)) ?? 0
        guard count + rest < bytes.byteCount else { return }
        // There is no descriptor left to send the rest by, and the peer may have a part.
        socket.fail(.tooManyOpenFiles, on: nil)
        throw engine.failure(.tooManyOpenFiles)
    }

    /// Requests an event for space, once everything has been sent.
    private func requestSpace() {
        guard !isSpaceRequested.exchange(true, ordering: .relaxed) else { return }
        let engine = halves.output.engine
        engine.backend.whenFlushed(
            FlushCallback { [weak self] in
                self?.isSpaceRequested.store(false, ordering: .relaxed)
                engine.finish(Transfer(count: 0), of: 1)
                engine.refresh()
            })
    }
}

/// Merges the events of both streams into the connection's. Used on the loop's thread.
private final class ConnectionDelivery: StreamDelegate {
    private let connection: Connection
    private let delegate: any ConnectionDelegate
    /// Whether the delegate is being called. A run of the loop within that leaves further events for later.
    private var isCalling = false
    /// Unchecked, because one thread uses it, and no access to it calls a client's code: each event looks at it.
    @safe @exclusivity(unchecked) private var waiting: [(isInput: Bool, event: Stream.Event)] = []

    init(of connection: Connection, to delegate: any ConnectionDelegate) {
        (self.connection, self.delegate) = (connection, delegate)
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        let isInput = stream === connection.halves.input
        guard !isCalling else { return waiting.append((isInput, event)) }
        isCalling = true
        handle(event, ofInput: isInput)
        while !waiting.isEmpty, !isClosed {
            let next = waiting.removeFirst()
            // What the delegate has read, or written, since then: the stream delivers what there is now.
            let isTransfer = next.event == .hasBytesAvailable || next.event == .hasSpaceAvailable
            let half = next.isInput ? connection.halves.input : connection.halves.output
            if !isTransfer || half.engine.awaitsTransfer { handle(next.event, ofInput: next.isInput) }
        }
        isCalling = false
    }

    private var isClosed: Bool { connection.halves.input.engine.isClosed }

    private var peerHasEnded: Bool { connection.peerHasEnded.load(ordering: .relaxed) }

    private func handle(_ event: Stream.Event, ofInput isInput: Bool) {
        switch event {
        case .openCompleted, .endEncountered: if isInput { handleInput(event) }
        case .errorOccurred: fail()
        default: deliver(event)
        }
    }

    private func handleInput(_ event: Stream.Event) {
        if event == .endEncountered { connection.peerHasEnded.store(true, ordering: .sequentiallyConsistent) }
        deliver(event)
        if peerHasEnded, !isClosed, connection.halves.output.streamStatus == .atEnd { connection.close() }
    }

    /// Delivers the bytes that arrived before the error, as long as the delegate takes them, and then the error. An input
    /// that has failed itself has none left.
    private func fail() {
        while !isClosed, connection.halves.input.hasBytesAvailable {
            connection.hasReceived.store(false, ordering: .relaxed)
            deliver(.hasBytesAvailable)
            guard connection.hasReceived.load(ordering: .relaxed) else { break }
        }
        if isClosed { return }
        deliver(.errorOccurred)
        connection.close()
    }

    private func deliver(_ event: Stream.Event) {
        let connectionEvent: Connection.Event =
            switch event {
            case .openCompleted: .openCompleted
            case .hasBytesAvailable: .hasBytesAvailable
            case .hasSpaceAvailable: .hasSpaceAvailable
            case .endEncountered: .endEncountered
            default: .errorOccurred(connection.error!)
            }
        delegate.connection(connection, handle: connectionEvent)
    }
}
