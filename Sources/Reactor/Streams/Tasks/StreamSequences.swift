extension InputStream {
    /// The stream's bytes in chunks of up to 64 KiB, for `for try await`.
    ///
    /// ```swift
    /// for try await chunk in InputStream(path: "/var/log/syslog").chunks { total += chunk.count }
    /// ```
    ///
    /// A chunk has the bytes that are there. While none is awaited the stream is not read, so its peer has to
    /// wait. An iteration that is left early, or that throws because its task was cancelled, loses nothing: the
    /// next iteration, another read, or a delegate that is set afterwards gets the bytes after the last
    /// element. The delegate is also told of an end, or an error, that the iteration has reached.
    ///
    /// The iteration opens the stream if it is not open. A stream on no loop is put on the loop that the task
    /// belongs to: by an actor's executor, by the task's preference, or the main loop for the main actor. A
    /// task of none waits on a thread of the library. The stream stays on that loop until it is closed,
    /// scheduled, or given a delegate. A stream that the client has scheduled is served in the modes that it
    /// is scheduled in.
    ///
    /// - Precondition: One task reads at a time. The stream has no delegate, is not handed off, and is of no
    ///   subclass.
    public var chunks: Chunks { chunks() }

    /// As ``chunks``, of another size or with a timeout.
    ///
    /// - Parameters:
    ///   - size: The maximum number of bytes of a chunk, at least one.
    ///   - timeout: How long each element may take to arrive, from the call of `next()`; nil for no limit. After it the
    ///     iteration throws ``IOError`` with ``IOError/Reason/waitTimedOut``, and has ended.
    public func chunks(upTo size: Int = defaultChunkSize, timeout: Duration? = nil) -> Chunks {
        require(size > 0, "InputStream.chunks(upTo:) needs a positive size (it is \(size)).")
        return Chunks(stream: self, size: size, timeout: timeout)
    }

    /// The stream's bytes, one by one, for `for try await`. As ``chunks`` otherwise.
    ///
    /// Closing the stream inside the iteration leaves the offset of a file behind the chunk that was read:
    /// leave the iteration first, where another reader of the descriptor follows.
    ///
    /// Swift's runtime looks for a task's executor at each element: chunks are many times as fast.
    public var bytes: Bytes { bytes() }

    /// As ``bytes``, with a timeout for each byte: see ``chunks(upTo:timeout:)``.
    public func bytes(timeout: Duration? = nil) -> Bytes { Bytes(stream: self, timeout: timeout) }

    /// The chunks of a stream: ``InputStream/chunks``.
    public struct Chunks: AsyncSequence {
        fileprivate let stream: InputStream
        fileprivate let size: Int
        fileprivate let timeout: Duration?

        /// Begins an iteration, and opens the stream if it is not open.
        ///
        /// - Precondition: No other task reads the stream.
        public func makeAsyncIterator() -> Iterator { Iterator(EagerReader(stream, timeout: timeout), size) }

        /// Reads one chunk after the other.
        public struct Iterator: AsyncIteratorProtocol {
            /// Nil after the end, or an error.
            private var reader: EagerReader?
            private let size: Int

            fileprivate init(_ reader: EagerReader, _ size: Int) { (self.reader, self.size) = (reader, size) }

            /// The next chunk; nil at the end.
            nonisolated(nonsending) public mutating func next() async throws -> [UInt8]? {
                try await next(isolation: #isolation)
            }

            /// The next chunk; nil at the end.
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> [UInt8]? {
                guard let reader = reader.take() else { return nil }
                // Not a call of the reader's: each asynchronous frame costs as much as a read.
                while true {
                    if let chunk = try reader.readChunk(upTo: size) {
                        if chunk.isEmpty { return nil }
                        reader.use.endElement()
                        self.reader = reader
                        return chunk
                    }
                    try await reader.use.parker(actor).park(isolation: actor)
                }
            }
        }
    }

    /// The bytes of a stream: ``InputStream/bytes``.
    public struct Bytes: AsyncSequence {
        fileprivate let stream: InputStream
        fileprivate let timeout: Duration?

        /// Begins an iteration, and opens the stream if it is not open.
        ///
        /// - Precondition: No other task reads the stream.
        public func makeAsyncIterator() -> Iterator { Iterator(buffer: ByteBuffer(stream, timeout)) }

        /// Returns one byte after the other.
        public struct Iterator: AsyncIteratorProtocol {
            /// Nil after the end, or an error.
            @usableFromInline var buffer: ByteBuffer?

            fileprivate init(buffer: ByteBuffer) { self.buffer = buffer }

            /// The next byte; nil at the end.
            @inlinable
            nonisolated(nonsending) public mutating func next() async throws -> UInt8? {
                if let byte = buffer?.take() { return byte }
                return try await fill(isolation: #isolation)
            }

            /// The next byte; nil at the end.
            @inlinable
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> UInt8? {
                if let byte = buffer?.take() { return byte }
                return try await fill(isolation: actor)
            }

            /// Reads more bytes, and returns the first.
            @usableFromInline
            mutating func fill(isolation: isolated (any Actor)?) async throws -> UInt8? {
                guard let buffer = buffer.take(), try await buffer.fill(isolation: isolation) else {
                    return nil
                }
                self.buffer = buffer
                return buffer.take()
            }
        }
    }
}

/// Reads a stream for an iteration: several times for each event, as long as there are more bytes than asked
/// for.
final class EagerReader {
    let use: StreamUse
    var engine: StreamEngine { use.stream.engine }
    /// The maximum number of bytes of the next chunk: four times the last chunk if that had as many as it could, otherwise
    /// twice, so that small chunks take little memory.
    private var window = 4096
    private static let leastWindow = 256

    /// - Parameters:
    ///   - timeout: How long an element may take.
    ///   - shutdown: What ends the iteration when it begins.
    ///   - readsAhead: Whether the iteration keeps bytes that it has not returned.
    init(
        _ stream: InputStream, timeout: Duration?, shutdown: GracefulShutdown? = nil, readsAhead: Bool = false
    ) {
        use = StreamUse(iterating: stream, timeout: timeout, shutdown: shutdown, readsAhead: readsAhead)
    }

    /// Reads up to `size` bytes without waiting, in memory of about their number.
    ///
    /// - Returns: None at the end; nil if the task has to wait first.
    func readChunk(upTo size: Int) throws -> [UInt8]? {
        let limit = min(size, window)
        var chunk: [UInt8] = []
        guard try read(into: &chunk, upTo: limit) else { return nil }
        window = chunk.count == limit ? 4 * limit : max(2 * chunk.count, Self.leastWindow)
        return chunk.trimmed()
    }

    /// Appends up to `size` bytes without waiting; none at the end. False if the task has to wait first.
    private func read(into bytes: inout [UInt8], upTo size: Int) throws -> Bool {
        guard let count = try use.transfer({ try engine.readIfReady(&bytes, upTo: size) }) else {
            return false
        }
        if count > 0, count < size { use.waitBeforeNextTransfer() }
        return true
    }

    /// Appends up to `size` bytes; none at the end, or once the shutdown has begun.
    func read(
        into bytes: inout [UInt8], upTo size: Int, isolation: isolated (any Actor)?
    ) async throws {
        while try !read(into: &bytes, upTo: size) {
            try await use.parker(isolation).park(isolation: isolation)
            if use.isOver { return }
        }
    }
}

/// The bytes that an iteration has read and not returned.
@usableFromInline
final class ByteBuffer {
    private let reader: EagerReader
    @usableFromInline var bytes: [UInt8] = []
    @usableFromInline var position = 0

    fileprivate init(_ stream: InputStream, _ timeout: Duration?) {
        reader = EagerReader(stream, timeout: timeout, readsAhead: true)
    }

    deinit { reader.engine.putBack(Array(bytes[position...])) }

    @inlinable
    func take() -> UInt8? {
        guard position < bytes.count else { return nil }
        defer { position &+= 1 }
        return bytes[position]
    }

    /// Reads more bytes; false at the end.
    fileprivate func fill(isolation: isolated (any Actor)?) async throws -> Bool {
        bytes.removeAll(keepingCapacity: true)
        position = 0
        try await reader.read(into: &bytes, upTo: InputStream.defaultChunkSize, isolation: isolation)
        reader.use.endElement()
        return !bytes.isEmpty
    }
}
