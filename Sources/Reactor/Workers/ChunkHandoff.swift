public import Dispatch
import Synchronization
import SystemPackage

/// Hands a stream's bytes over from its run loop to a processor on a Dispatch queue, and brings the result
/// back to the loop.
///
/// Chunks are processed in order, one at a time; several hand-offs on one queue go side by side as far as the
/// queue allows. The bytes in flight are bounded by ``HandoffLimits``: at the cap the stream is not read. So
/// memory does not depend on the stream's size, nor on how slow the processor is; with a ``ByteBudget``, nor
/// on how many hand-offs there are.
///
/// The loop reads what the kernel announces, such as sockets and pipes. A regular file is read on the processor's
/// queue, one chunk at a time, just before the processor is called.
///
/// ```swift
/// let input = InputStream(path: "/var/log/syslog")
/// let handoff = ChunkHandoff(input, to: Checksum(), on: DispatchQueue(label: "checksum"))
/// handoff.start { report in
///     print(report.output, "after", report.byteCount, "bytes")
///     RunLoop.current.stop()
/// }
/// RunLoop.current.run(in: .default)
/// ```
///
/// The hand-off owns the stream: it opens it, is its delegate, and closes it at the end.
public final class ChunkHandoff<Processor: ChunkProcessor>: Sendable {
    /// What the closures given to ``start(inModes:progress:completion:)`` receive.
    public typealias Report = HandoffReport<Processor.Output>

    private let worker: ChunkWorker
    private let output = Outlet<Processor.Output>()
    /// Nil once it has been started.
    private let stream: Mutex<LoopOwned<InputStream>?>
    private let home: RunLoop

    /// Prepares a hand-off on the calling thread's loop; nothing is read before it is started.
    ///
    /// - Parameters:
    ///   - stream: An input that nobody else reads.
    ///   - processor: Belongs to the worker from now on.
    ///   - queue: Where the processor is called.
    ///   - limits: How much is in flight.
    public init(
        _ stream: InputStream, to processor: sending Processor, on queue: DispatchQueue,
        limits: HandoffLimits = HandoffLimits()
    ) {
        home = .current
        worker = ChunkWorker(ProcessorBox(processor, output), on: queue, limits)
        self.stream = Mutex(LoopOwned(stream, on: home))
    }

    deinit {
        if stream.withLock({ $0 == nil }) { worker.abandon() }
    }

    /// How far the processor has come. From any thread.
    public var progress: HandoffProgress { worker.progress }

    /// Starts reading. The hand-off then runs until it completes, even if every reference to it is released; a
    /// suspended one, which nothing could resume then, is cancelled.
    ///
    /// The completion is called exactly once, whether the stream ends, fails, is closed, or has done so before the
    /// start. Closing the stream fails the hand-off with `Errno.badFileDescriptor`. So does removing the stream from its
    /// loop, scheduling it on a queue, or, when the next event comes, setting its delegate; but not if the stream is of a
    /// regular file, which is scheduled on no loop. A stream that another hand-off reads fails it with
    /// `Errno.resourceBusy`. If Dispatch cannot start a worker for want of descriptors or threads, it fails with the
    /// `Errno` of that.
    ///
    /// The stream is removed from the run loops, or the queue, that it was on, and the delegate that it had receives no
    /// more events. Until the hand-off completes, the stream cannot be scheduled on another loop or queue.
    ///
    /// If the loop's thread ends before, the hand-off is cancelled, and its closures are let go of without
    /// having been called. Either closure may run the loop: more is read inside that, but neither is called.
    ///
    /// - Parameters:
    ///   - modes: In which modes of the loop the stream is read and the closures are called. They are kept
    ///     from being empty until the completion.
    ///   - progress: Called on the loop's thread now and then: about a hundred times in all when the end is
    ///     known, and never more than fifty times a second.
    ///   - completion: Called on the loop's thread, once.
    /// - Precondition: Called on the thread that made the hand-off, once, with at least one mode.
    public func start(
        inModes modes: [RunLoop.Mode] = [.default], progress: ((HandoffProgress) -> Void)? = nil,
        completion: @escaping (Report) -> Void
    ) {
        precondition(!modes.isEmpty, "a hand-off in no mode would never complete")
        guard let stream = stream.withLock({ $0.take() }) else {
            preconditionFailure("a hand-off is started once")
        }
        let reader = ChunkReader(stream.value, worker, progress: progress) { [output] conclusion in
            if let output = output.take() { completion(Report(conclusion, output)) }
        }
        reader.start(on: home, modes)
    }

    /// Ends the hand-off after the call of the processor that is under way. From any thread, at any time,
    /// more than once, the processor's calls included.
    ///
    /// It waits for nothing, and no call that is under way delays it: a queue that is suspended, or busy with
    /// something else, does not. What is in flight is not processed.
    /// The completion then reports ``HandoffReport/Ending/cancelled`` and how far it came.
    public func cancel() { worker.cancel() }

    /// Keeps the processor from being called, and the stream from being read, until ``resume()``: so a consumer
    /// that has no room for more output stops the input. From any thread, at any time, the start included.
    ///
    /// It is a state, not a count: one ``resume()`` ends it, however often this was called. It waits for
    /// nothing: the processor's call that is under way, or just about to begin, goes on, and so does a read.
    /// Chunks that have been read wait, at most the ``HandoffLimits/bytesInFlight``, and so do the stream's end
    /// and its faults; but the hand-off leaves its place in the line for a ``HandoffLimits/budget``.
    ///
    /// ``cancel()`` completes a suspended hand-off at once, and after it this does nothing. Releasing the last reference
    /// to a suspended hand-off cancels it.
    public func suspend() { worker.suspend() }

    /// Lets a suspended hand-off go on where it stopped; does nothing to others. From any thread.
    public func resume() { worker.resume() }
}

extension HandoffReport {
    fileprivate init(_ conclusion: HandoffFlow.Conclusion, _ output: Output) {
        ending =
            switch conclusion.fault {
            case nil: conclusion.isCancelled ? .cancelled : .finished
            case is StopProcessing: conclusion.isCancelled ? .cancelled : .stopped
            case let fault?: .failed(fault)
            }
        byteCount = conclusion.byteCount
        self.output = output
    }
}

/// Where a processor's output waits for the completion.
private final class Outlet<Output: Sendable>: Sendable {
    private let output = Mutex<Output?>(nil)

    func put(_ output: Output) { self.output.withLock { $0 = output } }

    func take() -> Output? { output.withLock { $0.take() } }
}

private final class ProcessorBox<Processor: ChunkProcessor>: AnyProcessor {
    private var processor: Processor
    private let outlet: Outlet<Processor.Output>

    init(_ processor: Processor, _ outlet: Outlet<Processor.Output>) {
        self.processor = processor
        self.outlet = outlet
    }

    func process(_ chunk: RawSpan) throws { try processor.process(chunk) }

    func finish() throws { try processor.finish() }

    func leaveOutput() { outlet.put(processor.output) }
}
