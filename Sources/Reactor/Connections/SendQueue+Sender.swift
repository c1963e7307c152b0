import Synchronization
import SystemPackage

extension SendQueue {
    /// Sends the messages of a queue, and outlives it while some wait.
    final class Sender: Sendable {
        let state: Mutex<State>
        let engine: StreamEngine
        /// The connection whose turns to write the queue takes; nil for a stream.
        let connection: Connection?
        /// Retains the stream.
        private let stream: Transferred<OutputStream>?
        /// Whether the queue was released while messages waited.
        fileprivate let isReleased = Atomic(false)

        init(to connection: Connection, limit: Int) {
            (self.connection, stream) = (connection, nil)
            engine = connection.halves.output.engine
            state = Mutex(State(limit: limit))
        }

        init(to stream: sending OutputStream, limit: Int) {
            connection = nil
            engine = stream.engine
            state = Mutex(State(limit: limit))
            self.stream = Transferred(stream)
        }

        deinit {
            // The connection may still be in use.
            if isReleased.load(ordering: .relaxed) { engine.backend.limitStall(false) }
        }
    }
}

extension SendQueue.Sender {
    /// Why the stream has failed.
    var failure: (any Error)? { state.withLock { $0.failure } }

    /// Limits how long the peer may take no byte, so that one that stalls does not keep what waits, and the connection,
    /// permanently.
    func queueReleased() {
        guard !state.withLock({ $0.isEmpty }) else { return }
        isReleased.store(true, ordering: .sequentiallyConsistent)
        engine.backend.limitStall(true)
    }

    func drainThenCheck() throws {
        if let failure = drain() { throw failure }
    }

    /// Sends what waits until the stream has no room. Called by the thread that has made the phase ``State/Phase/sending``.
    ///
    /// - Returns: Why the stream has failed, if this has found out.
    @discardableResult
    func drain() -> (any Error)? {
        var count = 0
        while let (bytes, position, hasTurn) = state.withLock({ $0.next() }) {
            // The calling thread sends a bounded part of what others add meanwhile.
            if count > Self.turnSize {
                DispatchWorkers.run { [self] in drain() }
                break
            }
            guard hasTurn || takeTurn() else { break }
            do {
                let sent = try bytes.withBytes { try write($0.extracting(droppingFirst: position)) }
                count += sent
                let (passesTurn, flushes) = state.withLock { $0.advance(by: sent) }
                if passesTurn { connection?.turns.pass() }
                for flush in flushes { engine.backend.whenFlushed(flush) }
                if position + sent < bytes.count, !findRoom() { break }
            } catch {
                fail(error)
                return error
            }
        }
        return nil
    }

    /// 256 KiB: four write buffers of the usual size.
    private static let turnSize = 262_144

    /// Takes the connection's turn. If other code has it, draining continues with its end.
    private func takeTurn() -> Bool {
        guard let connection else { return true }
        var isTaken = connection.turns.takeIfFree()
        if !isTaken {
            state.withLock { $0.beginPending() }
            isTaken = connection.turns.takeOrCall { [self] in
                state.withLock { $0.hasTurn = true }
                drain()
            }
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

    /// Whether there may be room by now. If not, draining continues when the stream reports it.
    private func findRoom() -> Bool {
        state.withLock { $0.beginWait() }
        // The buffer may be new.
        if isReleased.load(ordering: .sequentiallyConsistent) { engine.backend.limitStall(true) }
        engine.backend.whenRoom(
            FlushCallback { [self] in
                if state.withLock({ $0.endWait() }) { drain() }
            })
        return state.withLock { $0.isRoomFound() }
    }

    private func fail(_ error: any Error) {
        var (hadTurn, writers, flushes) = state.withLock { $0.fail(error) }
        if hadTurn { connection?.turns.pass() }
        while let writer = writers.popFirst() { writer.wait.end(.brokenPipe) }
        for flush in flushes { flush() }
    }
}
