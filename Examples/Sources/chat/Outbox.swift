/// Bytes on their way to one guest, first in, first out. Pure: it writes nothing.
struct Outbox {
    private var bytes: [UInt8] = []
    /// How many of the first bytes have been sent.
    private var start = 0

    var count: Int { bytes.count - start }

    var isEmpty: Bool { count == 0 }

    mutating func append(_ line: String) {
        bytes += line.utf8
        bytes.append(UInt8(ascii: "\n"))
    }

    /// Offers the first `most` bytes to `write`, and removes as many as it says that it has taken.
    mutating func send(atMost most: Int, _ write: (UnsafeBufferPointer<UInt8>) -> Int) -> Int {
        let end = min(bytes.count, start + most)
        let taken = unsafe bytes.withUnsafeBufferPointer { all in
            unsafe write(UnsafeBufferPointer(rebasing: all[start..<end]))
        }
        start += max(taken, 0)
        // Moving what is left costs as much as what is gone has: only now and then.
        if start * 2 >= bytes.count {
            bytes.removeFirst(start)
            start = 0
        }
        return taken
    }
}
