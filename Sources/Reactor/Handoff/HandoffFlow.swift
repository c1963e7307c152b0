/// The state that the threads of a hand-off share: the chunks, the state of each side, and how the hand-off
/// ends.
///
/// Pure: every event is a method, called under the hand-off's lock. It returns the worker's next step, and
/// adds to ``Effects`` what the caller performs after unlocking.
///
/// The worker reads a file itself, one chunk at a time. The loop reads everything else, and chunks queue in
/// between: an idle worker is called for the first one, and the reader resumes when half of the chunks are
/// free, so that neither wakes the other for every chunk.
struct HandoffFlow: Sendable {
    /// The state of the worker: idle, on its way to the queue, reading a file, in the processor, or ended.
    private enum Worker { case idle, called, reading, processing, over }

    /// The worker's next step.
    enum Step: ~Copyable, Sendable {
        case read(Chunk, FileSource)
        /// Process a chunk. If the worker reads a file, the chunk is from that source.
        case process(Chunk, FileSource?)
        case finish((any Error)?)
        /// Let other work on the queue run first.
        case yield
        /// Wait to be called again.
        case idle
    }

    /// What the caller does after unlocking.
    struct Effects: ~Copyable {
        var callsWorker = false
        fileprivate(set) var callbacks: [Callback] = []
        /// Memory to free, which may make room in a budget for other hand-offs.
        fileprivate var dropped: [Chunk] = []

        fileprivate mutating func call(_ callback: Callback?) {
            if let callback { callbacks.append(callback) }
        }
    }

    /// How the hand-off has ended.
    struct Conclusion: Sendable {
        let failure: (any Error)?
        let isCancelled: Bool
        let byteCount: Int
        /// The processor's.
        let output: any Sendable
    }

    struct Update: Sendable {
        let progress: HandoffProgress?
        let conclusion: Conclusion?
    }

    /// How many chunks one job processes before it yields to other work on the queue.
    private static let chunksPerJob = 64

    private var chunks: ChunkPool
    /// Signals the loop to take the latest update. Nil before the loop's side begins, and once it has ended.
    private var announce: Callback?
    /// Signals the reader, which is the loop or the worker, to read again.
    private var resumeReading: Callback?
    /// The file that the worker reads; nil if the loop reads.
    private var source: FileSource?

    /// The chunks that wait for the worker, and the end of the stream.
    private var full: BoundedQueue<[Chunk], any Error>

    private var worker = Worker.idle
    private var chunksLeft = 0
    private var isReaderIdle = true
    private(set) var isSuspended = false

    var label: String?
    private var tracker = ProgressTracker()
    private var conclusion: Conclusion?
    private var isConcluded = false
    /// Whether the loop is calling one of the client's closures.
    private var isCallingClosure = false

    init(_ limits: HandoffLimits) {
        limits.requireValid()
        chunks = ChunkPool(limits)
        full = BoundedQueue(limit: limits.chunkCount)
    }

    var isCancelled: Bool { full.isCancelled }

    var progress: HandoffProgress { tracker.progress }

    /// What the loop has not received yet, for which it calls the client's closures until ``endUpdate()``.
    mutating func takeUpdate() -> Update {
        isCallingClosure = true
        return Update(progress: tracker.takeProgress(), conclusion: conclusion.take())
    }

    mutating func endUpdate() { isCallingClosure = false }
}

extension HandoffFlow {
    /// The bytes that have been read and wait for the processor.
    var waitingByteCount: Int { full.contents.reduce(0) { $0 + $1.byteCount } }

    var title: String { "hand-off\(label.map { " '\($0)'" } ?? "")" }

    /// What the hand-off waits for, as a predicate; nil for bytes of its stream.
    ///
    /// - Parameter delay: Why the loop does not serve the hand-off yet, as a clause.
    func explanation(delay: String?) -> String? {
        if isCallingClosure { return "is calling its progress closure or its completion" }
        switch worker {
        case .over where conclusion != nil:
            return delay.map { "has ended, and its completion waits: \($0)" }
                ?? "was cancelled, as its loop has ended"
        case .over: return isConcluded ? "has ended" : "is finishing its processor"
        case .processing: return "is calling its processor"
        case .reading: return "is reading its file"
        case _ where isSuspended: return "is suspended: call resume()"
        case .called: return "waits for its queue, which is busy or suspended"
        case .idle: break
        }
        guard let budget = chunks.awaitedBudget else { return nil }
        return "waits for its budget: \(budget.inUse) of \(budget.limit) bytes are in use"
    }
}

// MARK: - The loop's side

extension HandoffFlow {
    mutating func connect(_ announce: Callback) { self.announce = announce }

    /// Removes the callbacks, which the caller releases after unlocking.
    mutating func disconnect() -> [Callback?] { [announce.take(), resumeReading.take()] }

    /// The loop reads, and again when `resume` is called.
    mutating func start(resume: Callback) { resumeReading = resume }

    /// The worker reads `source`, and again when `resume` is called.
    mutating func start(_ source: FileSource, resume: Callback, _ effects: inout Effects) {
        (self.source, resumeReading) = (source, resume)
        tracker.expect(source.file.expectedByteCount)
        callWorker(&effects)
    }

    /// Marks the reader busy. Returns false if it is already.
    mutating func beginReading() -> Bool {
        guard isReaderIdle else { return false }
        isReaderIdle = false
        return true
    }

    /// A chunk to fill; or nil, and the reader becomes idle.
    mutating func takeFree() -> Chunk? {
        if full.isOpen, !isSuspended, let chunk = chunks.take(orCall: resumeReading) { return chunk }
        isReaderIdle = true
        return nil
    }

    /// Queues a filled chunk. An empty one ends the stream, with `failure` if it failed.
    mutating func put(_ chunk: Chunk, _ failure: (any Error)?, _ effects: inout Effects) {
        if chunk.byteCount > 0, full.isOpen {
            full.put(chunk)
            callWorker(&effects)
        } else {
            giveBack(chunk, &effects)
            if chunk.byteCount == 0 { end(failure, &effects) }
        }
    }

    /// Ends the stream, after the chunks in the queue. Only the first end counts.
    mutating func end(_ failure: (any Error)?, _ effects: inout Effects) {
        guard full.isOpen else { return }
        full.end(failure)
        cancelRequest(&effects)
        callWorker(&effects)
    }
}

// MARK: - The worker's side

extension HandoffFlow {
    mutating func beginWork(_ effects: inout Effects) -> Step {
        guard worker == .called else { return .idle }
        chunksLeft = Self.chunksPerJob
        return nextStep(&effects)
    }

    /// Queues a chunk that the worker has read, as ``put(_:_:_:)`` does. The hand-off may have been cancelled
    /// meanwhile.
    mutating func takeRead(_ chunk: Chunk, _ failure: (any Error)?, _ effects: inout Effects) -> Step {
        put(chunk, failure, &effects)
        return worker == .over ? .idle : nextStep(&effects)
    }

    /// Takes back a chunk that has been processed, or that the processor threw `failure` in.
    mutating func takeProcessed(
        _ chunk: Chunk, _ count: Int, _ failure: (any Error)?, _ effects: inout Effects
    ) -> Step {
        giveBack(chunk, &effects)
        if failure == nil, tracker.add(count, at: { Deadline.now.uptimeNanoseconds }) {
            effects.call(announce)
        }
        chunksLeft -= 1
        if let failure { return .finish(failure) }
        return nextStep(&effects)
    }

    private mutating func nextStep(_ effects: inout Effects) -> Step {
        if isSuspended { return stop() }
        worker = .processing
        if isCancelled { return .finish(nil) }
        if chunksLeft == 0 {
            worker = .called
            return .yield
        }
        if let chunk = full.takeFirst() { return .process(chunk, source) }
        if !full.isOpen { return .finish(full.producerFailure) }
        guard let source, let chunk = chunks.take(orCall: resumeReading) else { return stop() }
        worker = .reading
        return .read(chunk, source)
    }

    private mutating func stop() -> Step {
        worker = .idle
        return .idle
    }

    /// Ends the flow, when the worker has no more to do.
    mutating func close(_ effects: inout Effects) {
        full.end()
        worker = .over
        effects.dropped += full.take() + chunks.takeFree()
        cancelRequest(&effects)
    }

    /// Records how the hand-off has ended, after the processor has been released.
    mutating func conclude(_ failure: (any Error)?, _ output: any Sendable, _ effects: inout Effects) {
        isConcluded = true
        conclusion = Conclusion(
            failure: failure, isCancelled: isCancelled, byteCount: progress.byteCount, output: output)
        effects.call(announce)
    }
}

// MARK: - Suspending and cancelling, from any thread

extension HandoffFlow {
    mutating func suspend(_ effects: inout Effects) {
        guard !isCancelled else { return }
        isSuspended = true
        cancelRequest(&effects)
    }

    mutating func resume(_ effects: inout Effects) {
        guard isSuspended else { return }
        isSuspended = false
        if full.hasResult || source != nil { callWorker(&effects) }
        if source == nil, isReaderIdle, full.isOpen { effects.call(resumeReading) }
    }

    /// Drops the chunks that have not been processed. Returns true if the processor is not being called, and
    /// won't be: the caller then concludes the hand-off, and waits neither for a queue nor for a read.
    mutating func cancel(_ effects: inout Effects) -> Bool {
        effects.dropped += full.cancel()
        isSuspended = false
        cancelRequest(&effects)
        guard worker != .processing, worker != .over else { return false }
        worker = .over
        return true
    }
}

// MARK: - Effects

extension HandoffFlow {
    /// Takes a chunk back, and calls the reader if there is room for it.
    private mutating func giveBack(_ chunk: Chunk, _ effects: inout Effects) {
        if worker == .over || !chunks.giveBack(chunk) { effects.dropped.append(chunk) }
        guard source == nil, isReaderIdle, full.isOpen, !isSuspended else { return }
        if chunks.isHalfUnused { effects.call(resumeReading) }
    }

    private mutating func cancelRequest(_ effects: inout Effects) {
        effects.callbacks += chunks.cancelRequest()
    }

    mutating func callWorker(_ effects: inout Effects) {
        guard worker == .idle else { return }
        worker = .called
        effects.callsWorker = true
    }
}
