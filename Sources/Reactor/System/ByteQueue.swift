import SystemPackage

/// A first-in, first-out queue of bytes. Pure.
struct ByteQueue: BoundedQueueContents {
    private var bytes: [UInt8]
    private var start = 0

    init() { bytes = [] }

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var count: Int { bytes.count - start }

    /// Appends as many of `new` as fit within `limit`, and returns how many.
    mutating func append(_ new: RawSpan, limit: Int) -> Int {
        let accepted = max(0, min(new.byteCount, limit - count))
        // Moves no more bytes than have left the queue since the last move.
        if start > 0, bytes.count + accepted > bytes.capacity, start >= count {
            bytes.removeFirst(start)
            start = 0
        }
        bytes.append(new.extracting(first: accepted))
        return accepted
    }

    /// Appends the bytes that `read` writes to memory of `size` bytes, and returns its result.
    mutating func append<Failure: Error>(
        upTo size: Int, _ read: (inout MutableRawSpan) throws(Failure) -> Int
    ) throws(Failure) -> Int {
        try bytes.append(upTo: size, read)
    }

    /// Inserts `new` before the first byte: without moving the others, if as many bytes have left the queue.
    mutating func prepend(_ new: [UInt8]) {
        if bytes.isEmpty {
            bytes = new
            return
        }
        let index = max(0, start - new.count)
        bytes.replaceSubrange(index..<start, with: new)
        start = index
    }

    /// Moves as many bytes as fit to `destination`, and returns how many.
    mutating func take(into destination: inout MutableRawSpan) -> Int {
        let taken = bytes.withBytes { destination.copy($0.extracting(droppingFirst: start)) }
        start += taken
        if count == 0 {
            bytes.removeAll(keepingCapacity: true)
            start = 0
        }
        return taken
    }

    /// Passes the bytes to `send` until it takes none. Frees the memory when all have been taken.
    mutating func send(_ send: (RawSpan) throws(Errno) -> Int) throws(Errno) {
        while count > 0 {
            let taken = try bytes.withBytes { (all) throws(Errno) in
                try send(all.extracting(droppingFirst: start))
            }
            guard taken > 0 else { return }
            start += taken
        }
        removeAll()
    }

    mutating func removeAll() { (bytes, start) = ([], 0) }
}
