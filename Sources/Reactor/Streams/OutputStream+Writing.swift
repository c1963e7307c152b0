extension OutputStream {
    /// Writes all of `text` as UTF-8, like ``write(_:)-([UInt8])``.
    ///
    /// - Returns: How many bytes were accepted, not how many characters: a stream that accepts fewer than `text.utf8.count`
    ///   may end inside a character.
    @discardableResult
    public func write(_ text: String) -> Int {
        var text = text
        return text.withUTF8 { unsafe writeAll(UnsafeRawBufferPointer($0)) }
    }

    /// Writes all of `bytes`, like ``write(_:)-([UInt8])``.
    @discardableResult
    public func write(_ bytes: RawSpan) -> Int {
        unsafe bytes.withUnsafeBytes { unsafe writeAll($0) }
    }

    /// Writes all of `bytes`, waiting for room as often as it takes. With a ``writeBufferSize`` on a run loop it does not
    /// wait, and writes as many as there is room for.
    ///
    /// - Returns: How many bytes were accepted: fewer than all if the stream is full, has failed, or is closed.
    /// - Precondition: ``Stream/open()`` was called. (``write(_:maxLength:)`` returns -1 instead, as in Cocoa.)
    @discardableResult
    public func write(_ bytes: [UInt8]) -> Int {
        unsafe bytes.withUnsafeBytes { unsafe writeAll($0) }
    }

    /// Writes all of `bytes`, like ``write(_:)-([UInt8])``. Copies them first unless they are contiguous in memory.
    @discardableResult
    public func write(_ bytes: some Sequence<UInt8>) -> Int {
        let written = bytes.withContiguousStorageIfAvailable { unsafe writeAll(UnsafeRawBufferPointer($0)) }
        return written ?? write(Array(bytes))
    }

    private func writeAll(_ bytes: UnsafeRawBufferPointer) -> Int {
        var written = 0
        while written < bytes.count, let start = bytes.baseAddress {
            let next = unsafe (start + written).assumingMemoryBound(to: UInt8.self)
            let count = unsafe write(next, maxLength: bytes.count - written)
            guard count > 0 else {
                precondition(
                    count == 0 || streamStatus != .notOpen,
                    "OutputStream.write was called before open(), so none of its bytes would be written.")
                break
            }
            written += count
        }
        return written
    }
}
