extension InputStream {
    /// Reads up to and including `delimiter`, and returns the bytes before it.
    ///
    /// Bytes after the delimiter, and all bytes after an error, stay with the stream: the next read returns
    /// them first.
    ///
    /// - Parameters:
    ///   - delimiter: At least one byte.
    ///   - limit: The maximum number of bytes before the delimiter.
    ///   - timeout: How long to wait for the delimiter; nil for no limit.
    /// - Returns: The bytes before the delimiter; nil if the stream ends before any byte.
    /// - Throws: ``IOError``; with ``IOError/Reason/ended(bytesReceived:bytesRequested:)`` if bytes without a delimiter are
    ///   left at the end; with `Errno.messageTooLong` if there are more than `limit` before it. `CancellationError`.
    /// - Precondition: As for ``readChunk(upTo:timeout:)``.
    nonisolated(nonsending) public func read(
        until delimiter: [UInt8], limit: Int = LineFramer.defaultLimit, timeout: Duration? = nil
    ) async throws -> [UInt8]? {
        require(!delimiter.isEmpty, "InputStream.read(until:) needs a delimiter of at least one byte.")
        let use = try StreamUse(self, timeout: timeout, readsAhead: true)
        var bytes: [UInt8] = []
        do {
            let end = try await use.read(into: &bytes, until: delimiter, limit: limit, isolation: #isolation)
            guard let end else { return nil }
            engine.putBack(Array(bytes[end...]))
            bytes.removeLast(bytes.count - end + delimiter.count)
            return bytes
        } catch {
            engine.putBack(bytes)
            throw error
        }
    }
}

extension StreamUse {
    /// Appends bytes until they contain the delimiter; may read past it.
    ///
    /// - Returns: Where the delimiter ends; nil if the stream ends before any byte.
    fileprivate func read(
        into bytes: inout [UInt8], until delimiter: [UInt8], limit: Int, isolation: isolated (any Actor)?
    ) async throws -> Int? {
        var search = DelimiterSearch(delimiter)
        while true {
            if let end = search.find(in: bytes), end - delimiter.count <= limit { return end }
            if bytes.count - delimiter.count >= limit { throw stream.engine.failure(.messageTooLong) }
            let new = try await next(isolation: isolation) {
                try stream.engine.readIfReady(&bytes, upTo: Self.searchSize)
            }
            guard new == 0 else { continue }
            if bytes.isEmpty { return nil }
            throw stream.engine.failure(.ended(bytesReceived: bytes.count, bytesRequested: nil))
        }
    }

    /// The maximum number of bytes of one read while a delimiter is looked for: what comes after it is copied once more.
    private static var searchSize: Int { 4096 }
}

/// Looks for a delimiter in bytes that grow at their end.
private struct DelimiterSearch {
    private let delimiter: [UInt8]
    /// No delimiter ends at or before this.
    private var checked = 0

    init(_ delimiter: [UInt8]) { self.delimiter = delimiter }

    /// Where the first delimiter ends.
    mutating func find(in bytes: [UInt8]) -> Int? {
        var end = max(checked + 1, delimiter.count)
        defer { checked = bytes.count }
        let last = delimiter[delimiter.count - 1]
        while end <= bytes.count {
            guard let index = bytes[(end - 1)...].firstIndex(of: last) else { return nil }
            end = index + 1
            if bytes[(end - delimiter.count)..<end].elementsEqual(delimiter) { return end }
            end += 1
        }
        return nil
    }
}
