import Dispatch
import Synchronization

/// The worker's side of a hand-off: takes chunks from the pipe to the processor, on the user's queue.
///
/// It occupies the queue only while there is something to process, one job at a time, so that chunks stay in
/// order on a concurrent queue too; and makes way after some chunks, so that several streams share a serial
/// one.
final class ChunkWorker<Processor: ChunkProcessor>: Sendable {
    typealias Report = HandoffReport<Processor.Output>

    /// Chunks that one job processes before it lets others on the queue.
    private static var chunksPerJob: Int { 64 }

    /// Has the processor take a chunk, and what is known of its lines.
    typealias Process = @Sendable (inout Processor, RawSpan, LineSurvey?) throws -> Void

    let pipe: ChunkPipe
    /// What ends the lines that the processor wants to know of, if any: an ASCII character.
    let lineEnd: UInt8?
    private let process: Process
    private let queue: DispatchQueue
    /// Nil once the hand-off is over.
    private let processor: Mutex<Processor?>
    private let ledger = HandoffLedger()
    private let report = Mutex<Report?>(nil)
    private let isCancelled = Flag()
    /// Has the loop ask for the news.
    private let announce = Bell()

    init(
        _ processor: sending Processor, on queue: DispatchQueue, _ limits: HandoffLimits, lineEnd: UInt8?,
        _ process: @escaping Process
    ) {
        pipe = ChunkPipe(limits)
        self.lineEnd = lineEnd
        self.process = process
        self.queue = queue
        self.processor = Mutex(processor)
    }

    // MARK: From the loop

    func connect(resumeReading: Callback, announce: Callback) {
        pipe.resumeReading.connect(resumeReading)
        self.announce.connect(announce)
    }

    func disconnect() {
        pipe.resumeReading.disconnect()
        announce.disconnect()
    }

    func expect(_ byteCount: Int?) { ledger.expect(byteCount) }

    /// From any thread.
    var progress: HandoffProgress { ledger.progress }

    func takeNews() -> (progress: HandoffProgress?, report: Report?) {
        let report = report.withLock { $0.take() }  // first: all progress was made before it
        return (ledger.takeNews(), report)
    }

    // MARK: From the reader

    var isOver: Bool { isCancelled.isRaised }

    func put(_ chunk: Chunk) {
        if pipe.put(chunk) { start() }
    }

    func end(_ fault: (any Error)? = nil) {
        if pipe.end(fault) { start() }
    }

    /// From any thread: the worker finishes what it has in hand, and no more.
    func cancel() {
        isCancelled.raise()
        // Not here: the processor is the client's code, and who knows what the caller has locked.
        if pipe.cancel() { DispatchWorkers.run { [self] in conclude(nil) } }
    }

    /// Completes the hand-off with `fault` before anything is read, because Dispatch cannot start a worker.
    func fail(_ fault: Errno) { DispatchWorkers.run { [self] in conclude(fault) } }

    /// From any thread: neither side begins anything; what each has in hand it finishes.
    func suspend() { pipe.suspend() }

    /// From any thread: a suspended hand-off that nothing can resume any more ends.
    func abandon() { if pipe.isSuspended { cancel() } }

    func resume() {
        let (isWork, isReading) = pipe.resume()
        if isWork { start() }
        if isReading { pipe.resumeReading.ring() }
    }

    private func start() { queue.async { [self] in work() } }

    // MARK: On the queue

    private func work() {
        guard pipe.beginWork() else { return }
        for _ in 0..<Self.chunksPerJob {
            switch pipe.nextTurn() {
            case .rest: return
            case .finish(let fault): return conclude(fault)
            case .process(let chunk):
                if let fault = process(chunk) { return conclude(fault) }
            }
        }
        if pipe.interruptWork() { start() } else { conclude(nil) }
    }

    /// Processes a chunk; what ends the hand-off, if anything does.
    private func process(_ chunk: Chunk) -> (any Error)? {
        var count = 0
        var fault: (any Error)?
        do {
            count = try chunk.process { bytes, survey in
                try processor.withLock { processor in try processor?.process(bytes, survey, process) }
            }
        } catch { fault = error }
        if pipe.giveBack(chunk) { pipe.resumeReading.ring() }
        if ledger.account(count) { announce.ring() }
        return fault
    }

    /// Makes the report. Called once, with what the stream or the processor has failed with.
    private func conclude(_ fault: (any Error)?) {
        pipe.close()
        var fault = fault
        guard let output = dismissProcessor(&fault) else { return }
        let ending: Report.Ending =
            switch fault {
            case nil: isOver ? .cancelled : .finished
            case is StopProcessing: isOver ? .cancelled : .stopped
            case let fault?: .failed(fault)
            }
        let byteCount = ledger.progress.byteCount
        report.withLock { $0 = Report(ending: ending, output: output, byteCount: byteCount) }
        announce.ring()
    }

    /// Lets the processor finish, unless something has gone wrong, and lets go of it before anybody is told:
    /// what it held is free when the completion is called. Nil if that has been done.
    private func dismissProcessor(_ fault: inout (any Error)?) -> Processor.Output? {
        guard var last = processor.withLock({ $0.take() }) else { return nil }
        if fault == nil, !isOver { do { try last.finish() } catch { fault = error } }
        return last.output
    }
}

extension ChunkProcessor {
    fileprivate mutating func process(
        _ bytes: RawSpan, _ survey: LineSurvey?, _ process: ChunkWorker<Self>.Process
    ) throws { try process(&self, bytes, survey) }
}
