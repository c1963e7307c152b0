import SystemPackage

/// Bytes that wait to be sent, first in, first out, up to a limit. Pure.
struct ByteQueue {
    private var bytes: [UInt8] = []
    private var start = 0

    var count: Int { bytes.count - start }

    /// Appends as many of `new` as the limit allows, and returns how many.
    mutating func append(_ new: UnsafeRawBufferPointer, limit: Int) -> Int {
        let accepted = max(0, min(new.count, limit - count))
        // Moving the rest to the front costs no more than what has been sent since the last time.
        if start > 0, bytes.count + accepted > bytes.capacity, start >= count {
            bytes.removeFirst(start)
            start = 0
        }
        unsafe bytes.append(contentsOf: new.prefix(accepted))
        return accepted
    }

    /// Offers the bytes to `send` until it takes none. Memory that is no longer needed is released.
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
