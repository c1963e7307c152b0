extension InputStream {
    /// The stream's messages, as `framer` cuts them, for `for try await`.
    ///
    /// ```swift
    /// for try await message in InputStream(descriptor: .standardInput).messages(.contentLength()) { try handle(message) }
    /// ```
    ///
    /// A stream that ends between two messages ends the iteration. One that ends within a message has been cut short: the
    /// iteration throws ``IOError`` with ``IOError/Reason/ended(bytesReceived:bytesRequested:)``. A length that is malformed or
    /// above the limit throws ``Framer/InvalidMessage``, after the messages before it; what follows it cannot be read.
    ///
    /// An iteration that is left, or cancelled, loses nothing: the next read begins after the last message
    /// that it has returned.
    /// Otherwise as ``chunks``.
    ///
    /// - Parameters:
    ///   - framer: How the messages are told apart: a new framer, such as ``Framer/contentLength(limit:)``.
    ///   - timeout: How long each message may take to arrive whole, from the call of `next()`; nil for no limit. After it the
    ///     iteration throws ``IOError`` with ``IOError/Reason/waitTimedOut``, and has ended; the part of the message that has
    ///     come stays with the stream.
    ///   - shutdown: Ends the iteration when it begins, also while the next element is awaited; nil for nothing. What has come
    ///     of further elements stays with the stream.
    /// - Precondition: `framer` has consumed no bytes.
    public func messages(
        _ framer: Framer, timeout: Duration? = nil, shutdown: GracefulShutdown? = nil
    ) -> Messages {
        require(framer.byteCount == 0, "InputStream.messages needs a framer that has consumed no bytes.")
        return Messages(stream: self, framer: framer, timeout: timeout, shutdown: shutdown)
    }

    /// The messages of a stream: ``InputStream/messages(_:timeout:shutdown:)``.
    public struct Messages: AsyncSequence {
        fileprivate let stream: InputStream
        fileprivate let framer: Framer
        fileprivate let timeout: Duration?
        fileprivate let shutdown: GracefulShutdown?

        /// Begins an iteration, and opens the stream if it is not open.
        ///
        /// - Precondition: No other task reads the stream.
        public func makeAsyncIterator() -> Iterator {
            Iterator(buffer: MessageBuffer(stream, framer, timeout, shutdown))
        }

        /// Returns one message after the other.
        public struct Iterator: AsyncIteratorProtocol {
            /// Nil after the end, or an error.
            private var buffer: MessageBuffer?

            fileprivate init(buffer: MessageBuffer) { self.buffer = buffer }

            /// The next message, without what frames it; nil at the end.
            nonisolated(nonsending) public mutating func next() async throws -> [UInt8]? {
                try await next(isolation: #isolation)
            }

            /// The next message, without what frames it; nil at the end.
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> [UInt8]? {
                if let message = buffer?.take() { return message }
                guard let buffer = buffer.take(), let message = try await buffer.fill(isolation: actor) else {
                    return nil
                }
                self.buffer = buffer
                return message
            }
        }
    }
}

/// The messages that an iteration has cut and not returned.
private final class MessageBuffer {
    private let reader: EagerReader
    private var framer: Framer
    private var chunk: [UInt8] = []
    /// The offset of the chunk in the stream.
    private var chunkStart = 0
    /// The messages of the chunk.
    private var places: [Framer.Place] = []
    /// How many of them have been returned.
    private var position = 0
    /// The first of them, if it began in an earlier chunk.
    private var first: [UInt8]?
    private var failure: (any Error)?

    init(
        _ stream: InputStream, _ framer: Framer, _ timeout: Duration?, _ shutdown: GracefulShutdown?
    ) {
        reader = EagerReader(stream, timeout: timeout, shutdown: shutdown, readsAhead: true)
        self.framer = framer
    }

    /// Puts the bytes after the last message back.
    deinit {
        if position < places.count {
            reader.engine.putBack(Array(chunk[(places[position - 1].end - chunkStart)...]))
        } else if failure == nil {
            reader.engine.putBack(framer.pending)
        }
    }

    /// The next message that has come; nil once the iteration is over. Copied here, so that a message that is not returned is
    /// not.
    func take() -> [UInt8]? { reader.use.isOver ? nil : takeNext() }

    private func takeNext() -> [UInt8]? {
        guard position < places.count else { return nil }
        defer { position += 1 }
        if let first = first.take() { return first }
        let start = places[position].offset - chunkStart
        let count = places[position].count
        return chunk.withBytes { $0.extracting(start..<start + count).copy }
    }

    func fill(isolation: isolated (any Actor)?) async throws -> [UInt8]? {
        while !reader.use.isOver {
            if let failure { throw failure }
            guard let chunk = try reader.readChunk(upTo: InputStream.defaultChunkSize) else {
                try await reader.use.parker(isolation).park(isolation: isolation)
                continue
            }
            if chunk.isEmpty { return try finish() }
            cut(chunk)
            if let message = takeNext() {
                reader.use.endElement()
                return message
            }
        }
        return nil
    }

    private func cut(_ new: [UInt8]) {
        (chunk, chunkStart, position) = (new, framer.byteCount, 0)
        places.removeAll(keepingCapacity: true)
        do {
            _ = try chunk.withBytes { bytes in
                try framer.cut(bytes) { message, place in
                    if place.offset < chunkStart { first = message.copy }
                    places.append(place)
                    return .more
                }
            }
        } catch { failure = error }
    }

    private func finish() throws -> [UInt8]? {
        do { try framer.finish() } catch let error as Framer.InvalidMessage {
            guard case .ended(let received, let requested) = error.reason else { throw error }
            throw reader.engine.failure(.ended(bytesReceived: received, bytesRequested: requested))
        }
        return nil
    }
}

extension RawSpan {
    fileprivate var copy: [UInt8] {
        var bytes: [UInt8] = []
        bytes.append(self)
        return bytes
    }
}
