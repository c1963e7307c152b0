import SystemPackage

/// The bytes that a socket had no room for yet, in order. Pure.
struct SocketBacklog {
    private var bytes: [UInt8] = []
    private var start = 0
    /// Whether the peer is to be told, after the last byte, that nothing more will come.
    var isShutDown = false

    var count: Int { bytes.count - start }

    /// Keeps as many of `new` as the limit lets; returns how many.
    mutating func append(_ new: UnsafeRawBufferPointer, limit: Int) -> Int {
        let kept = max(0, min(new.count, limit - count))
        if start > 0, bytes.count + kept > bytes.capacity {
            bytes.removeFirst(start)
            start = 0
        }
        unsafe bytes.append(contentsOf: new.prefix(kept))
        return kept
    }

    /// Offers the bytes to `send` for as long as it takes any; memory that is no longer needed is given back.
    mutating func send(_ send: (UnsafeRawBufferPointer) throws(Errno) -> Int) throws(Errno) {
        while count > 0 {
            let taken = try unsafe bytes.withUnsafeBufferPointer { (all) throws(Errno) in
                try unsafe send(UnsafeRawBufferPointer(UnsafeBufferPointer(rebasing: all[start...])))
            }
            guard taken > 0 else { return }
            start += taken
        }
        (bytes, start) = ([], 0)
    }
}
