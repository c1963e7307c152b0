public import Dispatch
public import SystemPackage

/// Reads a stream line by line on a Dispatch queue, while its run loop stays free.
///
/// A closure on the queue receives the lines in order, one at a time, as borrowed bytes. Only a line that
/// straddles two chunks is copied. The closure works on a value of its own, which needs no locks and is
/// passed back to the loop at the end.
///
/// ```swift
/// let reader = LineReader(path: "/var/log/syslog", into: 0, on: DispatchQueue(label: "lines")) { count, line, place in
///     if line.byteCount > 80 { count += 1 }
/// }
/// reader.start { report in
///     print(report.output.value, "of", report.output.lineCount, "lines are long")
///     RunLoop.current.stop()
/// }
/// RunLoop.current.run(in: .default)
/// ```
///
/// ``Options`` bound the memory, whatever the file's size and however slow the closure. A task that wants the
/// lines themselves iterates over ``InputStream/lines``.
public final class LineReader<Value: Sendable>: Sendable {
    /// How lines are cut, and how many bytes are in flight.
    public struct Options: Sendable {
        /// What ends a line.
        public var terminator: LineTerminator
        /// The most bytes of a line, without its terminator.
        public var lineLimit: Int
        /// What happens to a line of more bytes.
        public var overflow: LineFramer.Overflow
        /// The most bytes in flight.
        public var limits: HandoffLimits
        /// Whether to validate whole chunks as UTF-8, which sets ``LineFramer/Line/isKnownUTF8`` for most
        /// lines. Lines that are delivered as text are always validated.
        public var checksUTF8: Bool

        /// Creates options. The defaults suit text files of any origin.
        public init(
            terminator: LineTerminator = .newline, lineLimit: Int = LineFramer.defaultLimit,
            overflow: LineFramer.Overflow = .fail, limits: HandoffLimits = HandoffLimits(),
            checksUTF8: Bool = false
        ) {
            self.terminator = terminator
            self.lineLimit = lineLimit
            self.overflow = overflow
            self.limits = limits
            self.checksUTF8 = checksUTF8
        }
    }

    /// The result of reading lines.
    public struct Output: Sendable {
        /// The closure's value.
        public let value: Value
        /// The number of lines delivered, including one that the closure threw in. A line in pieces counts
        /// once, when it has ended.
        public let lineCount: Int
        /// The number of bytes up to the end of the last delivery, with its terminator. Continue there after
        /// a stop, an error or a cancellation: no line is then lost or delivered twice. With
        /// ``LineFramer/Overflow/split`` it may be inside a line.
        public let byteCount: Int
        /// The most bytes of a line, without its terminator, including a line that was not delivered because
        /// it is not UTF-8.
        public let longestLine: Int
    }

    /// Receives a line without its terminator, borrowed until it returns, and its place.
    ///
    /// Called on the queue. Throwing ``StopProcessing`` ends the reading without a failure, any other error
    /// fails it.
    public typealias Body = @Sendable (inout Value, RawSpan, LineFramer.Line) throws -> Void

    /// Receives a line as text, otherwise as ``Body``.
    public typealias TextBody = @Sendable (inout Value, String, LineFramer.Line) throws -> Void

    /// Receives the closure's value after the last line, for example to save what it has collected.
    ///
    /// Called on the queue, once; not after an error, a stop or a cancellation. Throws as ``Body`` does.
    public typealias EndBody = @Sendable (inout Value) throws -> Void

    private let handoff: ChunkHandoff<LineProcessor<Value>>
    private let isCancelled = Flag()

    /// Creates a reader of `stream` on the calling thread's loop.
    ///
    /// - Parameters:
    ///   - stream: An input that no other code reads. The reader opens it, and closes it at the end.
    ///   - value: The initial value for `body`.
    ///   - queue: The queue that calls `body`.
    ///   - options: How lines are cut, and how many bytes are in flight.
    ///   - body: Called for each line.
    ///   - atEnd: Called after the last line.
    @inlinable
    public convenience init(
        _ stream: InputStream, into value: Value, on queue: DispatchQueue, options: Options = Options(),
        body: @escaping Body, atEnd: EndBody? = nil
    ) {
        self.init(stream, into: value, LineDelivery(body), atEnd, on: queue, options)
    }

    /// Creates a reader of the file at `path` on the calling thread's loop. The parameters are those of
    /// ``init(_:into:on:options:body:atEnd:)``.
    @inlinable
    public convenience init(
        path: FilePath, into value: Value, on queue: DispatchQueue, options: Options = Options(),
        body: @escaping Body, atEnd: EndBody? = nil
    ) {
        self.init(InputStream(path: path), into: value, LineDelivery(body), atEnd, on: queue, options)
    }

    /// Creates a reader of `stream`, as lines of text, on the calling thread's loop.
    ///
    /// - Parameters:
    ///   - stream: An input that no other code reads. The reader opens it, and closes it at the end.
    ///   - policy: What to do with a line that is not UTF-8. With `.report` the reading fails with
    ///     ``InvalidText``, which has the line's number and offset, after all lines before it have been
    ///     delivered.
    ///   - value: The initial value for `body`.
    ///   - queue: The queue that calls `body`.
    ///   - options: How lines are cut, and how many bytes are in flight.
    ///   - body: Called for each line.
    ///   - atEnd: Called after the last line.
    @inlinable
    public convenience init(
        _ stream: InputStream, text policy: TextPolicy, into value: Value, on queue: DispatchQueue,
        options: Options = Options(), body: @escaping TextBody, atEnd: EndBody? = nil
    ) {
        self.init(stream, into: value, LineDelivery(policy, body), atEnd, on: queue, options)
    }

    /// Creates a reader of the file at `path`, as lines of text, on the calling thread's loop. The parameters
    /// are those of ``init(_:text:into:on:options:body:atEnd:)``.
    @inlinable
    public convenience init(
        path: FilePath, text policy: TextPolicy, into value: Value, on queue: DispatchQueue,
        options: Options = Options(), body: @escaping TextBody, atEnd: EndBody? = nil
    ) {
        self.init(InputStream(path: path), into: value, LineDelivery(policy, body), atEnd, on: queue, options)
    }

    @usableFromInline
    init(
        _ stream: InputStream, into value: Value, _ delivery: LineDelivery<Value>, _ atEnd: EndBody?,
        on queue: DispatchQueue, _ options: Options
    ) {
        var framer = LineFramer(
            terminator: options.terminator, limit: options.lineLimit, overflow: options.overflow)
        framer.checksUTF8 = options.checksUTF8
        let processor = LineProcessor(value, delivery, atEnd, framer, isCancelled: isCancelled)
        handoff = ChunkHandoff(stream, to: processor, on: queue, limits: options.limits)
    }

    /// The reader's progress. From any thread.
    public var progress: HandoffProgress { handoff.progress }

    /// What explanations call the reader; nil for none. From any thread.
    public var label: String? {
        get { handoff.label }
        set { handoff.label = newValue }
    }

    /// How many bytes have been read and wait for the closure. From any thread.
    public var waitingByteCount: Int { handoff.waitingByteCount }

    /// Says in a sentence what the reader waits for; for a person, so the wording may change. From any thread.
    public func explain() -> String { handoff.explain() }

    /// Starts reading; see ``ChunkHandoff/start(inModes:progress:completion:)``.
    public func start(
        inModes modes: [RunLoop.Mode] = [.default], progress: ((HandoffProgress) -> Void)? = nil,
        completion: @escaping (HandoffReport<Output>) -> Void
    ) {
        handoff.start(inModes: modes, progress: progress, completion: completion)
    }

    /// Ends the reading after the current line. May be called from any thread, and by the closure.
    ///
    /// The completion reports ``HandoffReport/Ending/cancelled``, and an ``Output`` up to that line.
    public func cancel() {
        handoff.cancel()
        isCancelled.raise()
    }

    /// Stops delivering lines and reading the stream until ``resume()``; see ``ChunkHandoff/suspend()``. May
    /// be called from any thread, and by the closure.
    ///
    /// The remaining lines of the current chunk are still delivered: at most ``HandoffLimits/chunkSize``
    /// bytes.
    public func suspend() { handoff.suspend() }

    /// Resumes a suspended reader; does nothing to others. From any thread.
    public func resume() { handoff.resume() }
}
