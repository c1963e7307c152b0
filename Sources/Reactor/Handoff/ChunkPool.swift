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
