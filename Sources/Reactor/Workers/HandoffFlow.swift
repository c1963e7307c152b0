/// The state that the threads of a hand-off share: the chunks, what each side does, and how the hand-off ends.
///
/// Pure: every event is a method, called under the hand-off's lock, and what it leads to is returned or noted in
/// ``Errands``, which the caller runs after unlocking.
///
/// The worker reads a file itself, one chunk at a time. The loop reads everything else, and chunks wait in between:
/// the worker is called when it is idle, and the reader goes on when half of the chunks are free, so that neither
/// wakes the other for every chunk.
struct HandoffFlow: Sendable {
    /// What the worker does: nothing, waits for its turn on the queue, reads a file, has the processor, or will
    /// not work again.
    private enum Worker { case idle, called, reading, processing, over }

    /// What the worker does next.
    enum Turn: ~Copyable, Sendable {
        case read(Chunk, FileSource)
        /// Process a chunk, which the source has read if there is one.
        case process(Chunk, FileSource?)
        case finish((any Error)?)
        /// Let other work on the queue go first.
        case makeWay
        /// Nothing, until it is called again.
        case rest
    }

    /// What remains to be done after unlocking.
    struct Errands: ~Copyable {
        var callsWorker = false
        fileprivate(set) var callbacks: [Callback] = []
        /// Memory to free, which may make room in a budget for other hand-offs.
        fileprivate var dropped: [Chunk] = []
    }

    /// How the loop's side is reached, until it has ended.
    struct Link: Sendable {
        /// Has the loop fetch the progress and the report.
        let announce: Callback
        /// Has the loop read again.
        let resumeReading: Callback
    }

    /// How the hand-off has ended.
    struct Conclusion: Sendable {
        let fault: (any Error)?
        let isCancelled: Bool
        let byteCount: Int
    }

    struct News: Sendable {
        let progress: HandoffProgress?
        let conclusion: Conclusion?
    }

    /// How many chunks one job processes before it makes way for other work on the queue.
    private static let chunksPerJob = 64

    let limits: HandoffLimits
    private var link: Link?
    /// The file that the worker reads; nil if the loop reads.
    private var source: FileSource?

    private var free: [Chunk] = []
    /// The chunks that wait for the worker, in order.
    private var full: [Chunk] = []
    /// How many chunks there are, those in the hands of a side included.
    private var made = 0
    /// The place in the budget's line, while there is no room.
    private var ticket: BudgetLine.Ticket?

    private var worker = Worker.idle
    private var turnsLeft = 0
    private var isReaderIdle = true
    private(set) var isSuspended = false
    /// Whether no more chunks will come.
    private var isEnded = false
    private(set) var isCancelled = false
    private var fault: (any Error)?

    private var ledger = HandoffLedger()
    private var conclusion: Conclusion?

    init(_ limits: HandoffLimits) {
        precondition(limits.chunkSize > 0, "a chunk needs room for at least one byte")
        self.limits = limits
    }

    var progress: HandoffProgress { ledger.progress }

    /// What the loop has not been told yet.
    mutating func takeNews() -> News { News(progress: ledger.takeNews(), conclusion: conclusion.take()) }
}

// MARK: - The loop's side

extension HandoffFlow {
    mutating func connect(_ link: Link) { self.link = link }

    /// Ends the link; the caller releases it after unlocking.
    mutating func disconnect() -> Link? { link.take() }

    /// Has the worker read `source`.
    mutating func start(_ source: FileSource, _ errands: inout Errands) {
        self.source = source
        ledger.expect(source.expectedByteCount)
        callWorker(&errands)
    }

    /// Makes the reader busy. False if it is already, or has no more to read.
    mutating func beginReading() -> Bool {
        guard isReaderIdle, !isEnded else { return false }
        isReaderIdle = false
        return true
    }

    /// A chunk to fill, or nil, which makes the reader idle.
    mutating func takeFree() -> Chunk? {
        if !isEnded, !isSuspended, let chunk = makeRoom() { return chunk }
        isReaderIdle = true
        return nil
    }

    /// Hands over a chunk that has been filled; one without bytes ends the stream, with `fault` if it failed.
    mutating func put(_ chunk: Chunk, _ fault: (any Error)?, _ errands: inout Errands) {
        if chunk.byteCount > 0, !isEnded {
            full.append(chunk)
            callWorker(&errands)
        } else {
            giveBack(chunk, &errands)
            if chunk.byteCount == 0 { end(fault, &errands) }
        }
    }

    /// Ends the stream, after the chunks that wait. Only the first end counts.
    mutating func end(_ fault: (any Error)?, _ errands: inout Errands) {
        guard !isEnded else { return }
        (isEnded, self.fault) = (true, fault)
        leaveLine(&errands)
        callWorker(&errands)
    }
}

// MARK: - The worker's side

extension HandoffFlow {
    mutating func beginWork(_ errands: inout Errands) -> Turn {
        guard worker == .called else { return .rest }
        turnsLeft = Self.chunksPerJob
        return nextTurn(&errands)
    }

    /// Takes what the worker has read, as ``put(_:_:_:)`` does. The hand-off may have been cancelled meanwhile.
    mutating func takeRead(_ chunk: Chunk, _ fault: (any Error)?, _ errands: inout Errands) -> Turn {
        put(chunk, fault, &errands)
        return worker == .over ? .rest : nextTurn(&errands)
    }

    /// Takes a chunk that has been processed, or that the processor threw `fault` in.
    mutating func takeProcessed(
        _ chunk: Chunk, _ count: Int, _ fault: (any Error)?, _ errands: inout Errands
    ) -> Turn {
        giveBack(chunk, &errands)
        if fault == nil, ledger.add(count, at: { Deadline.now.uptimeNanoseconds }) { announce(&errands) }
        turnsLeft -= 1
        if let fault { return .finish(fault) }
        return nextTurn(&errands)
    }

    private mutating func nextTurn(_ errands: inout Errands) -> Turn {
        if isSuspended { return rest() }
        worker = .processing
        if isCancelled { return .finish(nil) }
        if turnsLeft == 0 {
            worker = .called
            return .makeWay
        }
        if !full.isEmpty { return .process(full.removeFirst(), source) }
        if isEnded { return .finish(fault) }
        guard let source, let chunk = makeRoom() else { return rest() }
        worker = .reading
        return .read(chunk, source)
    }

    private mutating func rest() -> Turn {
        worker = .idle
        return .rest
    }

    /// Ends the flow, when the worker has no more to do.
    mutating func close(_ errands: inout Errands) {
        (isEnded, worker) = (true, .over)
        errands.dropped += full + free
        (full, free) = ([], [])
        leaveLine(&errands)
    }

    /// Notes how the hand-off has ended, when the processor has been released.
    mutating func conclude(_ fault: (any Error)?, _ errands: inout Errands) {
        conclusion = Conclusion(fault: fault, isCancelled: isCancelled, byteCount: progress.byteCount)
        announce(&errands)
    }

    private func announce(_ errands: inout Errands) {
        if let link { errands.callbacks.append(link.announce) }
    }
}

// MARK: - Suspending and cancelling, from any thread

extension HandoffFlow {
    mutating func suspend(_ errands: inout Errands) {
        guard !isCancelled else { return }
        isSuspended = true
        leaveLine(&errands)
    }

    mutating func resume(_ errands: inout Errands) {
        guard isSuspended else { return }
        isSuspended = false
        if !full.isEmpty || isEnded || source != nil { callWorker(&errands) }
        if source == nil, isReaderIdle, !isEnded { resumeReading(&errands) }
    }

    /// Drops what has not been processed. True if the worker does not have the processor, and will not get it any
    /// more: then the caller concludes the hand-off, which need not wait for a queue or for a read.
    mutating func cancel(_ errands: inout Errands) -> Bool {
        errands.dropped += full
        full = []
        (isEnded, isCancelled, isSuspended, fault) = (true, true, false, nil)
        leaveLine(&errands)
        guard worker != .processing, worker != .over else { return false }
        worker = .over
        return true
    }
}

// MARK: - Chunks

extension HandoffFlow {
    /// A chunk, if fewer are in flight than the limits and the budget allow; else there is a place in the line of the
    /// budget.
    private mutating func makeRoom() -> Chunk? {
        if let chunk = free.popLast() { return chunk }
        guard made < limits.chunkCount else { return nil }
        guard let budget = limits.budget else {
            made += 1
            return Chunk()
        }
        guard let credit = takeCredit(of: budget) else { return nil }
        made += 1
        return Chunk(credit)
    }

    private mutating func takeCredit(of budget: ByteBudget) -> ByteCredit? {
        if let ticket {
            let credit = budget.redeem(ticket)
            if credit != nil { self.ticket = nil }
            return credit
        }
        guard let link else { return nil }
        switch budget.take(limits.chunkSize, orCall: link.resumeReading) {
        case .room(let credit): return credit
        case .place(let ticket):
            self.ticket = ticket
            return nil
        }
    }

    /// Takes a chunk back, to use it again. With a budget it is dropped.
    private mutating func giveBack(_ chunk: Chunk, _ errands: inout Errands) {
        if limits.budget == nil, worker != .over {
            free.append(chunk)
        } else {
            made -= 1
            errands.dropped.append(chunk)
        }
        let unused = limits.chunkCount - made + free.count
        guard source == nil, isReaderIdle, !isEnded, !isSuspended, ticket == nil else { return }
        if unused * 2 >= limits.chunkCount { resumeReading(&errands) }
    }

    private mutating func leaveLine(_ errands: inout Errands) {
        guard let ticket = ticket.take() else { return }
        errands.callbacks += limits.budget?.leave(ticket) ?? []
    }

    private func resumeReading(_ errands: inout Errands) {
        if let link { errands.callbacks.append(link.resumeReading) }
    }

    mutating func callWorker(_ errands: inout Errands) {
        guard worker == .idle, !isSuspended else { return }
        worker = .called
        errands.callsWorker = true
    }
}

/// How far a hand-off has come, and when to say so: a hundred times in all, or fifty times a second, whichever is
/// less.
struct HandoffLedger: Sendable {
    /// Faster than a person sees, and slower than a loop notices.
    private static let leastNanosecondsBetweenNews: Int64 = 20_000_000

    private var byteCount = 0
    private var expectedByteCount: Int?
    /// How many bytes, and which time, are due for the next news.
    private var nextMark = 0
    private var nextTime = Int64.min
    private var news: HandoffProgress?

    var progress: HandoffProgress {
        HandoffProgress(byteCount: byteCount, expectedByteCount: expectedByteCount)
    }

    /// Notes the stream's size. Zero is none: the size of a file that the kernel makes up as it is read.
    mutating func expect(_ byteCount: Int?) { expectedByteCount = byteCount == 0 ? nil : byteCount }

    /// Adds what has been processed; true if that is news.
    mutating func add(_ count: Int, at clock: () -> Int64) -> Bool {
        byteCount += count
        if let expected = expectedByteCount, byteCount > expected {
            expectedByteCount = nil  // the file has grown, no one knows how far
        }
        guard count > 0, byteCount >= nextMark else { return false }
        nextMark = byteCount + (expectedByteCount ?? 0) / 100
        let now = clock()
        guard now >= nextTime else { return false }
        nextTime = now + Self.leastNanosecondsBetweenNews
        news = progress
        return true
    }

    /// The latest news, once.
    mutating func takeNews() -> HandoffProgress? { news.take() }
}
