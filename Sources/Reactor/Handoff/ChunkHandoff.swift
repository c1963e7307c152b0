public import Dispatch
import Synchronization
import SystemPackage

/// Passes a stream's bytes from its run loop to a processor on a Dispatch queue, and brings the result back
/// to the loop.
///
/// Chunks are processed in order, one at a time; several hand-offs on one queue run in parallel as far as the
/// queue allows. ``HandoffLimits`` bounds the bytes in flight: at the limit the stream is not read. So memory
/// depends neither on the stream's size nor on the processor's speed; with a ``ByteBudget``, not on the
/// number of hand-offs either.
///
/// The loop reads the streams that the kernel reports as ready, such as sockets and pipes. A regular file is
/// read on the processor's queue, one chunk at a time, just before the processor is called.
///
/// ```swift
/// struct ByteCount: ChunkProcessor {
///     var output = 0
///     mutating func process(_ chunk: RawSpan) { output += chunk.byteCount }
/// }
///
/// let input = InputStream(path: "/var/log/syslog")
/// let handoff = ChunkHandoff(input, to: ByteCount(), on: DispatchQueue(label: "count"))
/// handoff.start { report in
///     print(report.output, "after", report.byteCount, "bytes")
///     RunLoop.current.stop()
/// }
/// RunLoop.current.run(in: .default)
/// ```
///
/// The hand-off owns the stream: it opens it, is its delegate, and closes it at the end. Until then no other code may read the
/// stream, and the offset of a file cannot be set; a processor that does so traps if the stream is a file's. A task waits for
/// the result of ``InputStream/handOff(to:on:limits:)``.
public final class ChunkHandoff<Output: Sendable>: Sendable {
    private let worker: ChunkWorker
    private let state: Mutex<State>
    private let loop: RunLoop
    /// For a processor that looks at it within a chunk.
    private let isCancelled: Flag

    private struct State: Sendable {
        /// Nil once the hand-off has been started.
        var stream: LoopOwned<InputStream>?
        /// For explanations.
        weak var engine: StreamEngine?
        var membership = Membership()
    }

    /// Creates a hand-off on the calling thread's loop. Nothing is read before it is started.
    ///
    /// - Parameters:
    ///   - stream: An input that no other code reads.
    ///   - processor: Belongs to the worker from now on.
    ///   - queue: The queue that calls the processor.
    ///   - limits: The maximum number of bytes in flight.
    public convenience init<Processor: ChunkProcessor>(
        _ stream: InputStream, to processor: sending Processor, on queue: DispatchQueue,
        limits: HandoffLimits = HandoffLimits()
    ) where Processor.Output == Output {
        self.init(stream, to: processor, on: queue, limits, isCancelled: Flag())
    }

    init<Processor: ChunkProcessor>(
        _ stream: InputStream, to processor: sending Processor, on queue: DispatchQueue,
        _ limits: HandoffLimits, isCancelled: Flag
    ) where Processor.Output == Output {
        (loop, self.isCancelled) = (.current, isCancelled)
        worker = ChunkWorker(processor, on: queue, limits)
        state = Mutex(State(stream: LoopOwned(stream, on: loop), engine: stream.engine))
    }

    deinit {
        if state.withLock({ $0.stream == nil }) { worker.abandon() }
    }

    /// The processor's progress. From any thread.
    public var progress: HandoffProgress { worker.flow.withLock { $0.progress } }

    /// What dumps, ``LoopDiagnostics`` and explanations call the hand-off; nil for none. From any thread.
    public var label: String? {
        get { worker.flow.withLock { $0.label } }
        set { worker.flow.withLock { $0.label = newValue } }
    }

    /// How many bytes have been read and wait for the processor. From any thread.
    public var waitingByteCount: Int { worker.flow.withLock { $0.waitingByteCount } }

    /// Says in a sentence what the hand-off waits for; for a person, so the wording may change. From any thread.
    public func explain() -> String {
        let (isStarted, engine, membership) = state.withLock { ($0.stream == nil, $0.engine, $0.membership) }
        let subject = "The \(worker.flow.withLock { $0.title })"
        guard isStarted else { return "\(subject) has not been started: call start()." }
        let delay = loop.inbox.reasonForDelay(of: "the hand-off", in: membership)
        let known = loop.inbox.isClosed ? nil : delay
        if let text = worker.flow.withLock({ $0.explanation(delay: known) }) {
            return "\(subject) \(text)."
        }
        if engine?.isReady == true { return "\(subject) has bytes to read: \(delay)." }
        let reason =
            loop.inbox.runs(in: membership)
            ? loop.explain() : "\(delay.prefix(1).uppercased())\(delay.dropFirst())."
        return "\(subject) waits for bytes of its stream. \(reason)"
    }

    /// Starts reading. The hand-off then runs until it completes, even if every reference to it is released;
    /// a suspended one, which nothing could resume then, is cancelled.
    ///
    /// The completion is called exactly once, whether the stream ends, fails, is closed, or has done so
    /// before the start. Closing the stream fails the hand-off: ``IOError`` with `Errno.badFileDescriptor`. So does
    /// removing the stream from its loop, scheduling it on a queue, or setting its delegate; but not if the
    /// stream is of a regular file, which is scheduled on no loop. If another hand-off owns the stream, this
    /// one fails with `Errno.resourceBusy`. If Dispatch cannot start a worker for lack of descriptors or
    /// threads, it fails with that error.
    ///
    /// The stream is removed from its run loops and its queue, and its delegate receives no more events.
    /// Until the hand-off completes, the stream cannot be scheduled on another loop or queue.
    ///
    /// If the loop's thread ends first, the hand-off is cancelled, and its closures are released without
    /// having been called. Either closure may run the loop: reading continues meanwhile, but neither closure is
    /// called.
    ///
    /// - Parameters:
    ///   - modes: The modes of the loop in which the stream is read and the closures are called. They are not
    ///     empty until the completion.
    ///   - progress: Called on the loop's thread: about a hundred times in all when the size is known, and at
    ///     most fifty times a second.
    ///   - completion: Called on the loop's thread, once.
    /// - Precondition: Called once, on the thread that created the hand-off, with at least one mode.
    public func start(
        inModes modes: [RunLoop.Mode] = [.default], progress: ((HandoffProgress) -> Void)? = nil,
        completion: @escaping (HandoffReport<Output>) -> Void
    ) {
        require(
            !modes.isEmpty,
            "ChunkHandoff.start(inModes:) needs at least one mode: in none, nothing would be read.")
        let common = loop.commonModes
        let stream = state.withLock { state in
            for mode in modes { state.membership.add(mode, common: common) }
            return state.stream.take()
        }
        guard let stream else { fatalError("ChunkHandoff.start(inModes:) must be called only once.") }
        let reader = ChunkReader(stream.value, worker, progress: progress) { conclusion in
            completion(HandoffReport(conclusion, conclusion.output as! Output))
        }
        reader.start(on: loop, modes)
    }

    /// Ends the hand-off after the processor's current call. May be called from any thread at any time,
    /// repeatedly, and by the processor.
    ///
    /// It does not wait, and neither a current call nor a suspended or busy queue delays the completion, except
    /// that a read of a borrowed descriptor that is in progress, of a file for example, ends first.
    /// Bytes in flight are not processed. The completion reports ``HandoffEnding/cancelled`` and the
    /// number of processed bytes.
    public func cancel() {
        worker.cancel()
        isCancelled.raise()
    }

    /// Stops calling the processor and reading the stream until ``resume()``, so that a consumer without room
    /// for more output can stop the input. May be called from any thread at any time, even before the start.
    ///
    /// Calls don't nest: one ``resume()`` is enough. It does not wait: a call of the processor, or a read,
    /// that is in progress or about to begin continues. Chunks that have been read wait, at most the
    /// ``HandoffLimits/bytesInFlight``, and so do the stream's end and its errors; but the hand-off leaves
    /// the queue of its ``HandoffLimits/budget``.
    ///
    /// ``cancel()`` completes a suspended hand-off at once; suspending has no effect after that. Releasing
    /// the last reference to a suspended hand-off cancels it.
    public func suspend() { worker.suspend() }

    /// Resumes a suspended hand-off; does nothing to others. From any thread.
    public func resume() { worker.resume() }
}

extension HandoffReport {
    fileprivate init(_ conclusion: HandoffFlow.Conclusion, _ output: Output) {
        ending =
            switch conclusion.failure {
            case nil: conclusion.isCancelled ? .cancelled : .finished
            case is StopProcessing: conclusion.isCancelled ? .cancelled : .stopped
            case let failure?: .failed(failure)
            }
        byteCount = conclusion.byteCount
        self.output = output
    }
}
