import Dispatch
import Synchronization
import SystemPackage

/// The worker's side of a hand-off: calls the processor on the client's queue, and reads files itself.
///
/// It occupies the queue only while there is work, with one job at a time, so that chunks stay in order on a
/// concurrent queue too. A job yields after some chunks, so that several streams share a serial queue.
final class ChunkWorker: Sendable {
    /// Changed by ``update(_:)`` where a change has effects.
    let flow: Mutex<HandoffFlow>
    private let chunkSize: Int
    private let queue: DispatchQueue
    /// Nil once the hand-off has ended. Locked while the processor is called, and not while a file is read. Of any type: in a
    /// generic worker each chunk costs some 3,000 instructions more, because the runtime looks up the type's metadata.
    private let processor: Mutex<(any ChunkProcessor)?>

    init(_ processor: sending any ChunkProcessor, on queue: DispatchQueue, _ limits: HandoffLimits) {
        flow = Mutex(HandoffFlow(limits))
        chunkSize = limits.chunkSize
        self.queue = queue
        self.processor = Mutex(processor)
    }

    /// Changes the flow, then performs the effects with nothing locked.
    @discardableResult
    private func update<Answer: ~Copyable & Sendable>(
        _ change: (inout HandoffFlow, inout HandoffFlow.Effects) -> Answer
    ) -> Answer {
        var effects = HandoffFlow.Effects()
        let answer = flow.withLock { change(&$0, &effects) }
        for callback in effects.callbacks { callback() }
        if effects.callsWorker { enqueue() }
        return answer
    }

    // MARK: From the loop

    /// The worker reads `source`.
    func start(reading source: FileSource) {
        let resume = Callback { [self] in update { $0.callWorker(&$1) } }
        update { $0.start(source, resume: resume, &$1) }
    }

    // MARK: From the reader

    /// Fills a chunk by `read` and passes it on. If there is no chunk to fill, the reader becomes idle. Zero
    /// bytes mean the stream's end, and a negative result an error.
    func fill(_ read: (inout MutableRawSpan) -> Int, failure: () -> any Error) {
        guard var chunk = flow.withLock({ $0.takeFree() }) else { return }
        let failure = chunk.fill { $0.append(upTo: chunkSize, read) } < 0 ? failure() : nil
        update { $0.put(chunk.take(), failure, &$1) }
    }

    func end(_ failure: (any Error)? = nil) { update { $0.end(failure, &$1) } }

    // MARK: From any thread

    /// The worker finishes the current call, and makes no more.
    func cancel() {
        // Concluded on another thread: the processor is the client's code, which may take a lock that the
        // caller holds.
        if update({ $0.cancel(&$1) }) { DispatchWorkers.run { [self] in conclude(nil) } }
    }

    /// Ends the hand-off with `failure` before anything is read, because Dispatch cannot start a worker.
    ///
    /// On a new thread, or on the caller's if none can be created.
    func fail(_ failure: IOError) {
        do throws(Errno) {
            _ = try JoinableThread(name: "reactor.work") { [self] in conclude(failure) }
        } catch {
            conclude(failure)
        }
    }

    /// Both sides finish what they are doing, and begin nothing new.
    func suspend() { update { $0.suspend(&$1) } }

    func resume() { update { $0.resume(&$1) } }

    /// Ends a suspended hand-off that nothing can resume any more.
    func abandon() { if flow.withLock({ $0.isSuspended }) { cancel() } }

    // MARK: On the queue

    private func enqueue() { queue.async(execute: DispatchWorkers.noted { [self] in work() }) }

    private func work() {
        // No other code reads the file during a job.
        var reader: FileReader?
        var next = update { $0.beginWork(&$1) }
        while true {
            switch consume next {
            case .read(var chunk, let source):
                if reader == nil { reader = source.file.takeReader() }
                next = read(&chunk, from: source, by: &reader!)
            case .process(var chunk, let source):
                // The offset of a file stays before the bytes of a chunk that is never processed.
                source?.file.advance(by: chunk.byteCount)
                next = process(&chunk)
            case .finish(let failure): return conclude(failure)
            case .yield: return enqueue()
            case .idle: return
            }
        }
    }

    private func read(
        _ chunk: inout Chunk, from source: FileSource, by reader: inout FileReader
    ) -> HandoffFlow.Step {
        var failure: (any Error)?
        do throws(Errno) {
            _ = try chunk.fill { (bytes) throws(Errno) in
                try source.append(to: &bytes, upTo: chunkSize, by: &reader)
            }
        } catch {
            // A stream that has no error has been closed by other code.
            failure = source.engine.error ?? source.engine.failure(.badFileDescriptor)
        }
        return update { [failure] in $0.takeRead(chunk.take(), failure, &$1) }
    }

    private func process(_ chunk: inout Chunk) -> HandoffFlow.Step {
        var failure: (any Error)?
        do {
            try processor.withLock { processor in try chunk.withBytes { try processor?.process($0) } }
        } catch { failure = error }
        let count = chunk.byteCount
        chunk.freeIfReserved()
        return update { $0.takeProcessed(chunk.take(), count, failure, &$1) }
    }

    /// Finishes the processor, unless there was an error, and releases it before the loop is notified: its
    /// resources are free when the completion is called. A second call does nothing.
    private func conclude(_ failure: (any Error)?) {
        update { $0.close(&$1) }
        guard var last = processor.withLock({ $0.take() }) else { return }
        var failure = failure
        if failure == nil, !flow.withLock({ $0.isCancelled }) {
            do { try last.finish() } catch { failure = error }
        }
        let output = last.output
        _ = consume last
        update { [failure] in $0.conclude(failure, output, &$1) }
    }
}
