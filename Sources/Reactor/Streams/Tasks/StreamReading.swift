// Reading for tasks: what operations and sequences share, and the operations.

extension StreamUse {
    /// Reads up to `size` bytes; none at the end.
    fileprivate func readChunk(
        upTo size: Int, isolation: isolated (any Actor)?
    ) async throws -> [UInt8] {
        require(size > 0, "InputStream.readChunk(upTo:) needs a positive size (it is \(size)).")
        var chunk: [UInt8] = []
        _ = try await next(isolation: isolation) { try stream.engine.readIfReady(&chunk, upTo: size) }
        return chunk
    }
}

extension StreamEngine {
    /// Appends up to `size` bytes to `bytes` without waiting, and at most a mebibyte, for which it makes room; see
    /// ``readIfReady(into:)``.
    func readIfReady(_ bytes: inout [UInt8], upTo size: Int) throws -> Int? {
        let count = try bytes.append(upTo: min(size, 1_048_576)) { try readIfReady(into: &$0) ?? -1 }
        return count < 0 ? nil : count
    }
}

extension InputStream {
    /// The maximum number of bytes of a chunk, unless the caller says otherwise: as many as a pipe holds.
    public static let defaultChunkSize = 65_536

    /// Reads the bytes that are there, and waits for the first one without blocking the thread.
    ///
    /// The asynchronous form of ``read(upTo:)``. The stream is opened if it is not.
    ///
    /// - Parameters:
    ///   - size: The maximum number of bytes, at least one.
    ///   - timeout: How long to wait; nil for no limit.
    /// - Returns: At least one byte; nil at the end.
    /// - Throws: ``IOError``, `Errno.resourceBusy` while another task reads the stream or iterates over it;
    ///   `CancellationError`.
    /// - Precondition: The stream has no delegate, and is not handed off.
    nonisolated(nonsending) public func readChunk(
        upTo size: Int = defaultChunkSize, timeout: Duration? = nil
    ) async throws -> [UInt8]? {
        let use = try StreamUse(self, timeout: timeout)
        let chunk = try await use.readChunk(upTo: size, isolation: #isolation).trimmed()
        return chunk.isEmpty ? nil : chunk
    }

    /// Calls `body` with the next bytes, which it borrows; see ``readChunk(upTo:timeout:)``.
    ///
    /// They count as read even if `body` throws.
    ///
    /// - Parameters:
    ///   - size: The maximum number of bytes, at least one.
    ///   - timeout: How long to wait for the bytes; nil for no limit.
    ///   - body: Called with at least one byte, in the calling code's isolation. It may suspend.
    /// - Returns: What `body` returns; nil at the end.
    /// - Throws: What `body` throws; ``IOError`` if no bytes could be read; `CancellationError`.
    nonisolated(nonsending) public func readChunk<Result>(
        upTo size: Int = defaultChunkSize, timeout: Duration? = nil,
        _ body: nonisolated(nonsending) (RawSpan) async throws -> Result
    ) async throws -> Result? {
        let use = try StreamUse(self, timeout: timeout)
        let chunk = try await use.readChunk(upTo: size, isolation: #isolation)
        return chunk.isEmpty ? nil : try await body(unsafe chunk.span.bytes)
    }

    /// Appends the bytes that are there to `buffer`, as many as fit, and waits for the first one.
    ///
    /// - Parameters:
    ///   - buffer: Has room for at least one byte.
    ///   - timeout: How long to wait; nil for no limit.
    /// - Returns: The number of bytes; 0 at the end.
    /// - Throws: ``IOError``, `CancellationError`.
    /// - Precondition: As for ``readChunk(upTo:timeout:)``; `buffer` is not full.
    nonisolated(nonsending) public func read(
        into buffer: inout OutputRawSpan, timeout: Duration? = nil
    ) async throws -> Int {
        require(
            !buffer.isFull, "InputStream.read(into:) needs a buffer with room for at least one byte.")
        let use = try StreamUse(self, timeout: timeout)
        return try await use.next(isolation: #isolation) { try engine.readIfReady(appendingTo: &buffer) }
    }

    /// Appends the bytes that are there to `buffer`, up to `size`, and waits for the first one; 0 at the end.
    nonisolated(nonsending) func read(
        into buffer: inout [UInt8], upTo size: Int, timeout: Duration?
    ) async throws -> Int {
        require(size > 0, "A read of a stream needs a positive size (it is \(size)).")
        let use = try StreamUse(self, timeout: timeout)
        return try await use.next(isolation: #isolation) { try engine.readIfReady(&buffer, upTo: size) }
    }

    /// Reads exactly `count` bytes.
    ///
    /// Bytes that were read before an error stay with the stream: the next read returns them first. Messages that tell their
    /// length are read by ``messages(_:timeout:shutdown:)``, which also tells a message that has been cut short after its
    /// length.
    ///
    /// - Parameters:
    ///   - count: The number of bytes.
    ///   - timeout: How long to wait for all of them; nil for no limit.
    /// - Returns: The bytes; nil if the stream ends before any byte.
    /// - Throws: ``IOError``; with ``IOError/Reason/ended(bytesReceived:bytesRequested:)`` if the stream has some bytes, but
    ///   fewer. `CancellationError`.
    /// - Precondition: As for ``readChunk(upTo:timeout:)``; `count` is not negative.
    nonisolated(nonsending) public func read(
        exactly count: Int, timeout: Duration? = nil
    ) async throws -> [UInt8]? {
        require(count >= 0, "InputStream.read(exactly:) needs a number of bytes (it is \(count)).")
        return try await readAhead(timeout) { use, bytes in
            while bytes.count < count {
                let size = min(count - bytes.count, Self.defaultChunkSize)
                let new = try await use.next(isolation: #isolation) {
                    try engine.readIfReady(&bytes, upTo: size)
                }
                if new > 0 { continue }
                if bytes.isEmpty { return nil }
                throw engine.failure(.ended(bytesReceived: bytes.count, bytesRequested: count))
            }
            return bytes
        }
    }

    /// Reads all bytes up to the end.
    ///
    /// ```swift
    /// let text = try await InputStream(path: "/etc/hosts").readToEnd(limit: 1 << 20)
    /// ```
    ///
    /// Bytes that were read before an error stay with the stream: the next read returns them first.
    ///
    /// - Parameters:
    ///   - limit: The maximum number of bytes. A peer can send more than fit into memory.
    ///   - timeout: How long to wait for the end; nil for no limit.
    /// - Returns: The bytes; none at the end.
    /// - Throws: ``IOError``; with `Errno.messageTooLong` if there are more than `limit`. `CancellationError`.
    /// - Precondition: As for ``readChunk(upTo:timeout:)``; `limit` is not negative.
    nonisolated(nonsending) public func readToEnd(limit: Int, timeout: Duration? = nil) async throws
        -> [UInt8]
    {
        require(limit >= 0, "InputStream.readToEnd(limit:) needs a number of bytes (it is \(limit)).")
        let bytes: [UInt8]? = try await readAhead(timeout) { use, bytes in
            repeat {
                // One more shows that there are more.
                let size = min(limit - bytes.count, Self.defaultChunkSize - 1) + 1
                let new = try await use.next(isolation: #isolation) {
                    try engine.readIfReady(&bytes, upTo: size)
                }
                if new == 0 { return bytes }
            } while bytes.count <= limit
            throw engine.failure(.messageTooLong)
        }
        return bytes ?? []
    }

    /// Waits until there are bytes to read, and leaves them to the next read.
    ///
    /// So the first byte of a message may take longer than the rest of it: wait for it with one timeout, and read with another.
    ///
    /// - Parameter timeout: How long to wait; nil for no limit.
    /// - Returns: Whether there are bytes; false at the end.
    /// - Throws: ``IOError``; `CancellationError`.
    /// - Precondition: As for ``readChunk(upTo:timeout:)``.
    nonisolated(nonsending) public func waitForBytes(timeout: Duration? = nil) async throws -> Bool {
        let use = try StreamUse(self, timeout: timeout, readsAhead: true)
        // Without memory while it waits.
        let bytes = try await use.next(isolation: #isolation) { () throws -> [UInt8]? in
            var bytes: [UInt8] = []
            return try engine.readIfReady(&bytes, upTo: Self.lookAheadSize) == nil ? nil : bytes
        }
        engine.putBack(bytes)
        return !bytes.isEmpty
    }

    /// So that few bytes are copied once more.
    private static var lookAheadSize: Int { 1024 }

    /// Calls `body`, which reads bytes into an array that is put back if it throws.
    nonisolated(nonsending) private func readAhead<Result>(
        _ timeout: Duration?,
        _ body: nonisolated(nonsending) (StreamUse, inout [UInt8]) async throws -> Result
    ) async throws -> Result {
        let use = try StreamUse(self, timeout: timeout, readsAhead: true)
        var bytes: [UInt8] = []
        do {
            try Task.checkCancellation()
            return try await body(use, &bytes)
        } catch {
            engine.putBack(bytes)
            throw error
        }
    }
}

extension StreamEngine {
    /// Appends bytes to `buffer` without waiting; see ``readIfReady(into:)``.
    fileprivate func readIfReady(appendingTo buffer: inout OutputRawSpan) throws -> Int? {
        try unsafe buffer.withUnsafeMutableBytes { (memory, count) throws in
            var room = unsafe UnsafeMutableRawBufferPointer(rebasing: memory[count...]).mutableBytes
            let new = try readIfReady(into: &room)
            count += new ?? 0
            return new
        }
    }
}

extension [UInt8] {
    /// The same bytes in memory of about their size, if they are few in a large array.
    func trimmed() -> [UInt8] {
        guard capacity > 1024, count < capacity / 2 else { return self }
        return withBytes { bytes in
            var copy: [UInt8] = []
            copy.append(bytes)
            return copy
        }
    }
}
