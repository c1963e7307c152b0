import Dispatch
import Synchronization
import SystemPackage

/// The worker's side of a hand-off: takes chunks to the processor on the client's queue, and reads files for itself.
///
/// It occupies the queue only while there is something to do, one job at a time, so that chunks stay in order on a
/// concurrent queue too; and makes way after some chunks, so that several streams share a serial one.
final class ChunkWorker: Sendable {
    private let flow: Mutex<HandoffFlow>
    private let chunkSize: Int
    private let queue: DispatchQueue
    /// Nil once the hand-off is over. Locked while the processor is called, and not while a file is read.
    private let processor: Mutex<(any AnyProcessor)?>

    init(_ processor: sending any AnyProcessor, on queue: DispatchQueue, _ limits: HandoffLimits) {
        flow = Mutex(HandoffFlow(limits))
        chunkSize = limits.chunkSize
        self.queue = queue
        self.processor = Mutex(processor)
    }

    /// Changes the flow, and runs the errands.
    @discardableResult
    private func update<Answer: ~Copyable & Sendable>(
        _ change: (inout HandoffFlow, inout HandoffFlow.Errands) -> Answer
    ) -> Answer {
        var errands = HandoffFlow.Errands()
        let answer = flow.withLock { change(&$0, &errands) }
        for callback in errands.callbacks { callback() }
        if errands.callsWorker { enqueue() }
        return answer
    }

    // MARK: From the loop

    /// Connects the worker to its loop, which reads the stream.
    func connect(announce: Callback, resumeReading: Callback) {
        flow.withLock { $0.connect(HandoffFlow.Link(announce: announce, resumeReading: resumeReading)) }
    }

    /// Connects the worker to its loop, and starts to read `source`.
    func connect(announce: Callback, reading source: FileSource) {
        connect(announce: announce, resumeReading: Callback { [self] in update { $0.callWorker(&$1) } })
        update { $0.start(source, &$1) }
    }

    func disconnect() {
        let link = flow.withLock { $0.disconnect() }
        withExtendedLifetime(link) {}  // destroyed here, and not under the lock
    }

    /// From any thread.
    var progress: HandoffProgress { flow.withLock { $0.progress } }

    func takeNews() -> HandoffFlow.News { flow.withLock { $0.takeNews() } }

    // MARK: From the reader

    func beginReading() -> Bool { flow.withLock { $0.beginReading() } }

    /// Fills a chunk by `read` and hands it over; when there is no chunk to fill, the reader is idle. No bytes are the
    /// stream's end, and a negative number is a fault.
    func fill(_ read: (UnsafeMutableRawBufferPointer) -> Int, fault: () -> any Error) {
        guard var chunk = flow.withLock({ $0.takeFree() }) else { return }
        let fault = unsafe chunk.fill(upTo: chunkSize, read) < 0 ? fault() : nil
        update { $0.put(chunk.take(), fault, &$1) }
    }

    func end(_ fault: (any Error)? = nil) { update { $0.end(fault, &$1) } }

    // MARK: From any thread

    /// The worker finishes the call that is under way, and makes no more.
    func cancel() {
        // Concluded elsewhere: the processor is the client's code, which may need what the caller has locked.
        if update({ $0.cancel(&$1) }) { DispatchWorkers.run { [self] in conclude(nil) } }
    }

    /// Completes the hand-off with `fault` before anything is read, because Dispatch cannot start a worker.
    ///
    /// That is on a thread of its own, or on the caller's if no thread can be made.
    func fail(_ fault: Errno) {
        do throws(Errno) {
            _ = try JoinableThread(name: "work") { [self] in conclude(fault) }
        } catch {
            conclude(fault)
        }
    }

    /// Neither side begins anything; each finishes what it has in hand.
    func suspend() { update { $0.suspend(&$1) } }

    func resume() { update { $0.resume(&$1) } }

    /// Ends a suspended hand-off, which nothing can resume any more.
    func abandon() { if flow.withLock({ $0.isSuspended }) { cancel() } }

    // MARK: On the queue

    private func enqueue() { queue.async { [self] in work() } }

    private func work() {
        var turn = update { $0.beginWork(&$1) }
        while true {
            switch consume turn {
            case .read(var chunk, let source): turn = read(&chunk, from: source)
            case .process(var chunk, let source):
                source?.claim(chunk)
                turn = process(&chunk)
            case .finish(let fault): return conclude(fault)
            case .makeWay: return enqueue()
            case .rest: return
            }
        }
    }

    private func read(_ chunk: inout Chunk, from source: FileSource) -> HandoffFlow.Turn {
        let fault = source.fill(&chunk, upTo: chunkSize)
        return update { $0.takeRead(chunk.take(), fault, &$1) }
    }

    private func process(_ chunk: inout Chunk) -> HandoffFlow.Turn {
        var fault: (any Error)?
        do {
            try processor.withLock { processor in try chunk.withBytes { try processor?.process($0) } }
        } catch { fault = error }
        let count = chunk.byteCount
        chunk.freeIfBudgeted()
        return update { $0.takeProcessed(chunk.take(), count, fault, &$1) }
    }

    /// Has the processor finish, unless something has gone wrong, and releases it before the loop is told: what it
    /// held is free when the completion is called. Called once, or a second time with nothing to do.
    private func conclude(_ fault: (any Error)?) {
        update { $0.close(&$1) }
        guard let last = processor.withLock({ $0.take() }) else { return }
        var fault = fault
        if fault == nil, !flow.withLock({ $0.isCancelled }) {
            do { try last.finish() } catch { fault = error }
        }
        last.leaveOutput()
        _ = consume last
        update { [fault] in $0.conclude(fault, &$1) }
    }
}

/// A processor of any type, as the worker calls it: a worker that knew the type would look up metadata for each chunk.
protocol AnyProcessor: AnyObject {
    func process(_ chunk: RawSpan) throws
    func finish() throws
    /// Leaves the output where the completion finds it.
    func leaveOutput()
}

/// A file that the worker reads for itself: one that is always ready, and as slow as its disk.
struct FileSource: Sendable {
    private let engine: StreamEngine
    private let file: ReadAheadInput

    /// Nil if the stream is not one of a file, or is a subclass's and so read by its own methods.
    init?(_ stream: InputStream) {
        guard type(of: stream) == InputStream.self, let file = stream.engine.backend as? ReadAheadInput else {
            return nil
        }
        (engine, self.file) = (stream.engine, file)
        file.beginClaiming()
    }

    var expectedByteCount: Int? { file.expectedByteCount }

    /// Counts a chunk as taken from the file. One that is never processed is not: a shared offset stays before it.
    func claim(_ chunk: borrowing Chunk) { file.claim(chunk.byteCount) }

    /// Fills a chunk; with no bytes at the end of the file, or after a fault, which is returned.
    func fill(_ chunk: inout Chunk, upTo size: Int) -> (any Error)? {
        let count = unsafe chunk.fill(upTo: size) { unsafe engine.read(into: $0) }
        // A stream that is not read, and has no error, has been closed by other code.
        return count < 0 ? engine.error ?? Errno.badFileDescriptor : nil
    }
}
