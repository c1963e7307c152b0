/// The bytes of one read, in memory that is reused or counts in a budget.
struct Chunk: Sendable {
    /// Not initialized beyond the bytes: a large chunk of a small stream takes no more pages than were read
    /// into.
    private var storage: [UInt8] = []
    private var reservation: ByteReservation?

    /// Creates an empty chunk. Its memory counts in the budget of `reservation`, if there is one.
    init(_ reservation: ByteReservation? = nil) { self.reservation = reservation }

    var byteCount: Int { storage.count }

    /// Calls `body` with the bytes, borrowed until it returns.
    func withBytes(_ body: (RawSpan) throws -> Void) rethrows { try storage.withBytes(body) }

    /// Replaces the bytes with those that `read` writes to memory of `size` bytes. Returns the result of
    /// `read`: the number of bytes, unless it is negative.
    mutating func fill(upTo size: Int, _ read: (inout MutableRawSpan) -> Int) -> Int {
        storage.removeAll(keepingCapacity: true)
        return storage.append(upTo: size, read)
    }

    /// Moves the bytes out, and leaves an empty chunk. A copy would share the memory, which then could not be
    /// reused.
    mutating func take() -> Chunk {
        let chunk = self
        self = Chunk()
        return chunk
    }

    /// Frees memory that counts in a budget, then releases its room.
    mutating func freeIfReserved() {
        guard reservation != nil else { return }
        storage = []
        reservation = nil
    }
}

/// A file that the worker reads itself: always ready, and as slow as its disk.
struct FileSource: Sendable {
    private let engine: StreamEngine
    private let file: ReadAheadInput

    /// Nil unless the stream is a file's. A subclass is read by its own methods.
    init?(_ stream: InputStream) {
        guard type(of: stream) == InputStream.self, let file = stream.engine.backend as? ReadAheadInput else {
            return nil
        }
        (engine, self.file) = (stream.engine, file)
        file.beginClaiming()
    }

    var expectedByteCount: Int? { file.expectedByteCount }

    /// Claims the bytes of a chunk. Those of a chunk that is never processed are not claimed: a shared offset
    /// stays before them.
    func claim(_ chunk: borrowing Chunk) { file.claim(chunk.byteCount) }

    /// Fills a chunk. It stays empty at the end of the file, and after an error, which is returned.
    func fill(_ chunk: inout Chunk, upTo size: Int) -> (any Error)? {
        let count = chunk.fill(upTo: size) { engine.read(into: &$0) }
        // A stream that cannot be read, and has no error, has been closed by other code.
        return count < 0 ? engine.error ?? Errno.badFileDescriptor : nil
    }
}
