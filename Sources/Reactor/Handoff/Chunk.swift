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

    /// Replaces the bytes with those that `append` appends. Returns its result.
    mutating func fill<Failure: Error>(
        _ append: (inout [UInt8]) throws(Failure) -> Int
    ) throws(Failure) -> Int {
        storage.removeAll(keepingCapacity: true)
        return try append(&storage)
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
