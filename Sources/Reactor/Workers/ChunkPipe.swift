import Glibc
import Synchronization

/// The chunks between a reader and a worker: a bounded number, handed over in order.
///
/// Either side stops when it has nothing to do, and is started again by the other; the reader only when half
/// of the chunks are free, so that the two do not wake each other for every one. With a budget the chunks are
/// not kept: each is made for a reading, when there is room for it, and freed after it.
final class ChunkPipe: Sendable {
    /// Where the worker is: it has nothing to do, has been sent for, works, or will not work again.
    enum Worker {
        case idle, called, busy, gone
    }

    struct State {
        var free: [Chunk] = []
        var full = ChunkQueue()
        /// How many chunks there are; they are made when they are first needed.
        var made = 0
        var isReaderIdle = true
        /// The reader's place in the budget's line; it is idle then.
        var ticket: BudgetLine.Ticket?
        var worker = Worker.idle
        var isSuspended = false
        /// Whether no more will come.
        var isEnded = false
        var isCancelled = false
        var fault: (any Error)?
    }

    let limits: HandoffLimits
    let state = Mutex(State())
    /// Has the reader go on.
    let resumeReading = Bell()

    init(_ limits: HandoffLimits) {
        precondition(limits.chunkSize > 0, "a chunk needs room for at least one byte")
        self.limits = limits
    }

    /// Makes the reader busy. False if it is that already, or has no more to do.
    func beginReading() -> Bool {
        state.withLock { state in
            guard state.isReaderIdle, !state.isEnded else { return false }
            state.isReaderIdle = false
            return true
        }
    }

    /// A chunk to fill; nil if all are in flight, there is no room for another, or this is suspended: and then
    /// the reader is idle.
    ///
    /// - Parameter isPatient: Whether to wait for the worker for a moment, so that a fast one need not start
    ///   the reader again.
    func takeFree(isPatient: Bool = false) -> Chunk? {
        if isPatient { yieldUntilFree() }
        switch state.withLock({ supply(&$0) }) {
        case .chunk(let chunk): return chunk
        case .room(let credit): return Chunk(size: limits.chunkSize, credit)
        case .nothing: return nil
        }
    }

    private enum Supply: ~Copyable {
        case chunk(Chunk)
        /// Where a new chunk may be made; with a budget's leave, if there is one.
        case room(ByteCredit?)
        case nothing
    }

    private func supply(_ state: inout State) -> Supply {
        if state.mayRead {
            if let chunk = state.free.popLast() { return .chunk(chunk) }
            if state.made < limits.chunkCount {
                guard let budget = limits.budget else { return room(nil, &state) }
                if let credit = room(in: budget, &state) { return room(credit, &state) }
            }
        }
        state.isReaderIdle = true
        return .nothing
    }

    private func room(_ credit: consuming ByteCredit?, _ state: inout State) -> Supply {
        state.made += 1
        return .room(credit)
    }

    /// Room for a chunk, or else a place in the line.
    private func room(in budget: ByteBudget, _ state: inout State) -> ByteCredit? {
        if let ticket = state.ticket {
            let credit = budget.redeem(ticket)
            if credit != nil { state.ticket = nil }
            return credit
        }
        switch budget.take(limits.chunkSize, orWaitFor: resumeReading) {
        case .room(let credit): return credit
        case .place(let ticket):
            state.ticket = ticket
            return nil
        }
    }

    /// Hands over a chunk that has been filled; true if the worker has to be started.
    func put(_ chunk: Chunk) -> Bool {
        state.withLock { state in
            guard !state.isEnded else { return false }
            state.full.append(chunk, capacity: limits.chunkCount)
            return state.callWorker()
        }
    }

    /// Takes back a chunk that has not been filled.
    func putBack(_ chunk: Chunk) { _ = giveBack(chunk) }

    /// Says that no more will come; true if the worker has to be started.
    func end(_ fault: (any Error)?) -> Bool {
        let (isCall, bells) = state.withLock { state in
            guard !state.isEnded else { return (false, [Bell]()) }
            state.isEnded = true
            state.fault = fault
            return (state.callWorker(), leaveLine(&state))
        }
        bells.ring()
        return isCall
    }

    /// Gives up the reader's place; whose bells are to be rung when nothing is locked.
    func leaveLine(_ state: inout State) -> [Bell] {
        guard let ticket = state.ticket.take() else { return [] }
        return limits.budget?.leave(ticket) ?? []
    }

    /// Lets other threads run until the reader has something to do, but not for long.
    private func yieldUntilFree() {
        for _ in 0..<Self.patience {
            let isFree = state.withLock { !$0.mayRead || !$0.free.isEmpty || $0.made < limits.chunkCount }
            if isFree { return }
            sched_yield()
        }
    }

    /// How often the reader yields before it stops: about as long as starting a stopped thread takes, so that
    /// waiting costs no more than not waiting. A worker does not wait like that: measured, it gains nothing.
    private static let patience = 40
}

extension ChunkPipe.State {
    var mayRead: Bool { !isEnded && !isSuspended }

    /// True if the worker was idle, and has to be started.
    mutating func callWorker() -> Bool {
        guard worker == .idle, !isSuspended else { return false }
        worker = .called
        return true
    }
}
