/// The chunks of a hand-off, of which the limits and the budget allow some in flight. Pure, but for the budget.
struct ChunkPool: Sendable {
    private let limits: HandoffLimits
    /// Chunks to use again.
    private var free: [Chunk] = []
    /// How many chunks there are, including those in flight.
    private var chunkCount = 0
    /// The request that waits in the budget's queue, if there was no room.
    private var request: BudgetQueue.RequestID?

    init(_ limits: HandoffLimits) { self.limits = limits }

    /// The budget that has no room for the next chunk.
    var awaitedBudget: ByteBudget? { request == nil ? nil : limits.budget }

    /// Whether a reader that waits for a chunk resumes: not for every chunk that is given back.
    var isHalfUnused: Bool {
        request == nil && (limits.chunkCount - chunkCount + free.count) * 2 >= limits.chunkCount
    }

    /// A chunk; nil if there is no room for one more. The budget calls `resume` when it has some.
    mutating func take(orCall resume: Callback?) -> Chunk? {
        if let chunk = free.popLast() { return chunk }
        guard chunkCount < limits.chunkCount else { return nil }
        var reservation: ByteReservation?
        if let budget = limits.budget {
            guard let reserved = reserve(of: budget, orCall: resume) else { return nil }
            reservation = reserved
        }
        chunkCount += 1
        return Chunk(reservation)
    }

    private mutating func reserve(of budget: ByteBudget, orCall resume: Callback?) -> ByteReservation? {
        if let request {
            let reservation = budget.claim(request)
            if reservation != nil { self.request = nil }
            return reservation
        }
        guard let resume else { return nil }
        switch budget.reserve(limits.chunkSize, orCall: resume) {
        case .reserved(let reservation): return reservation
        case .queued(let request):
            self.request = request
            return nil
        }
    }

    /// Takes a chunk back. With a budget it is not used again: returns false, and the caller drops it.
    mutating func giveBack(_ chunk: Chunk) -> Bool {
        if limits.budget == nil { free.append(chunk) } else { chunkCount -= 1 }
        return limits.budget == nil
    }

    mutating func takeFree() -> [Chunk] { exchange(&free, with: []) }

    /// Leaves the budget's queue.
    ///
    /// - Returns: What the caller calls after unlocking.
    mutating func cancelRequest() -> [Callback] {
        guard let request = request.take() else { return [] }
        return limits.budget?.cancel(request) ?? []
    }
}

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
