/// The bytes that one read took, in memory that is used again or counts in a budget.
struct Chunk: Sendable {
    /// Not initialised beyond the bytes: a large chunk of a small stream takes no more pages than were read into.
    private var storage: [UInt8] = []
    private var credit: ByteCredit?

    /// Makes an empty chunk, whose memory counts in the budget of `credit` if there is one.
    init(_ credit: ByteCredit? = nil) { self.credit = credit }

    var byteCount: Int { storage.count }

    /// Calls `body` with the bytes, borrowed until it returns.
    func withBytes(_ body: (RawSpan) throws -> Void) rethrows { try unsafe body(storage.span.bytes) }

    /// Replaces the bytes by what `read` writes to memory of `size` bytes, and returns what `read` does: how many
    /// they are, if not negative.
    mutating func fill(upTo size: Int, _ read: (UnsafeMutableRawBufferPointer) -> Int) -> Int {
        var result = 0
        storage.removeAll(keepingCapacity: true)
        storage.append(addingCapacity: size) { room in
            unsafe room.withUnsafeMutableBufferPointer { memory, count in
                result = unsafe read(
                    UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(memory)[..<size]))
                count = max(0, result)
            }
        }
        return result
    }

    /// Moves the bytes out, and leaves an empty chunk: memory that two chunks shared would not be used again.
    mutating func take() -> Chunk {
        let chunk = self
        self = Chunk()
        return chunk
    }

    /// Frees memory that counts in a budget, and then gives that back what it took.
    mutating func freeIfBudgeted() {
        guard credit != nil else { return }
        storage = []
        credit = nil
    }
}
