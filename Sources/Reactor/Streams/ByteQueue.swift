import SystemPackage

/// A first-in, first-out queue of bytes. Pure.
struct ByteQueue {
    private var bytes: [UInt8] = []
    private var start = 0

    var count: Int { bytes.count - start }

    /// Appends as many of `new` as fit within `limit`, and returns how many.
    mutating func append(_ new: UnsafeRawBufferPointer, limit: Int) -> Int {
        let accepted = max(0, min(new.count, limit - count))
        // Moves no more bytes than have left the queue since the last move.
        if start > 0, bytes.count + accepted > bytes.capacity, start >= count {
            bytes.removeFirst(start)
            start = 0
        }
        unsafe bytes.append(contentsOf: new.prefix(accepted))
        return accepted
    }

    /// Moves as many bytes as fit to `destination`, and returns how many.
    mutating func take(into destination: UnsafeMutableRawBufferPointer) -> Int {
        let taken = min(destination.count, count)
        unsafe bytes.withUnsafeBytes { all in
            unsafe destination.copyMemory(from: UnsafeRawBufferPointer(rebasing: all[start..<start + taken]))
        }
        start += taken
        if count == 0 {
            bytes.removeAll(keepingCapacity: true)
            start = 0
        }
        return taken
    }

    /// Passes the bytes to `send` until it takes none. Frees the memory when all have been taken.
    mutating func send(_ send: (UnsafeRawBufferPointer) throws(Errno) -> Int) throws(Errno) {
        while count > 0 {
            let taken = try unsafe bytes.withUnsafeBufferPointer { (all) throws(Errno) in
                try unsafe send(UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: all[start...])))
            }
            guard taken > 0 else { return }
            start += taken
        }
        removeAll()
    }

    mutating func removeAll() { (bytes, start) = ([], 0) }
}
