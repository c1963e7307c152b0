public import Dispatch
public import SystemPackage

/// Reads a stream line by line on a Dispatch queue, while its run loop stays free.
///
/// Lines are handed to a closure on the queue, in order and one at a time, as borrowed bytes: nothing is
/// copied unless a line straddles two chunks. The closure works on a value of its own, which needs no locks,
/// and which comes back to the loop in the end.
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
/// Memory is bounded by ``Options``, whatever the file's size and however slow the closure.
public final class LineReader<Value: Sendable>: Sendable {
    /// How lines are cut, and how much is in flight.
    public struct Options: Sendable {
        /// What ends a line.
        public var terminator: LineTerminator
        /// The most bytes of a line, without its terminator.
        public var lineLimit: Int
        /// What happens to a line of more bytes.
        public var overflow: LineFramer.Overflow
        /// How much is in flight.
        public var limits: HandoffLimits
        /// Whether whole chunks are checked for being UTF-8, which tells it of most lines:
        /// ``LineFramer/Line/isKnownUTF8``. Lines that are delivered as text are always checked like that.
        public var checksUTF8: Bool

        /// Makes options; the defaults suit text files of any origin.
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

    /// What has come of the lines.
    public struct Output: Sendable {
        /// The closure's own value.
        public let value: Value
        /// The lines that were delivered, one that the closure threw in included; one that was cut into
        /// pieces counts once, when it has ended.
        public let lineCount: Int
        /// The bytes up to the last delivery's end, its terminator included: where to go on after a stop, a fault
        /// or a cancellation. Nothing is lost or delivered twice by that. With
        /// ``LineFramer/Overflow/split`` this may be inside a line.
        public let byteCount: Int
        /// The most bytes that a line had, without its terminator; one that was not delivered because it is no text
        /// included.
        public let longestLine: Int
    }

    /// Receives a line without its terminator, borrowed until it returns, and where it stands.
    ///
    /// Called on the queue. An error ends the reading: ``StopProcessing`` without a fault, any other as one.
    public typealias Body = @Sendable (inout Value, RawSpan, LineFramer.Line) throws -> Void

    /// Receives a line as text, as ``Body`` does as bytes.
    public typealias TextBody = @Sendable (inout Value, String, LineFramer.Line) throws -> Void

    private let handoff: ChunkHandoff<LineProcessor<Value>>
    private let isCancelled = Flag()

    /// Prepares to read `stream` on the calling thread's loop.
    ///
    /// - Parameters:
    ///   - stream: An input that nobody else reads; it is opened, and closed in the end.
    ///   - value: What `body` works on, at first.
    ///   - queue: Where `body` is called.
    ///   - options: How lines are cut, and how much is in flight.
    ///   - body: Called for each line.
    @inlinable
    public convenience init(
        _ stream: InputStream, into value: Value, on queue: DispatchQueue, options: Options = Options(),
        body: @escaping Body
    ) {
        self.init(stream, into: value, LineDelivery(body), on: queue, options)
    }

    /// Prepares to read the file at `path` on the calling thread's loop. The parameters are those of
    /// ``init(_:into:on:options:body:)``.
    @inlinable
    public convenience init(
        path: FilePath, into value: Value, on queue: DispatchQueue, options: Options = Options(),
        body: @escaping Body
    ) {
        self.init(InputStream(path: path), into: value, LineDelivery(body), on: queue, options)
    }

    /// Prepares to read `stream`, line by line as text, on the calling thread's loop.
    ///
    /// - Parameters:
    ///   - stream: An input that nobody else reads; it is opened, and closed in the end.
    ///   - text: What becomes of a line that is not UTF-8. With `.report` the reading fails with
    ///     ``InvalidText``, which has its number and place, after all lines before it have been delivered.
    ///   - value: What `body` works on, at first.
    ///   - queue: Where `body` is called.
    ///   - options: How lines are cut, and how much is in flight.
    ///   - body: Called for each line.
    @inlinable
    public convenience init(
        _ stream: InputStream, text policy: TextPolicy, into value: Value, on queue: DispatchQueue,
        options: Options = Options(), body: @escaping TextBody
    ) {
        self.init(stream, into: value, LineDelivery(policy, body), on: queue, options)
    }

    /// Prepares to read the file at `path`, line by line as text, on the calling thread's loop. The parameters
    /// are those of ``init(_:text:into:on:options:body:)``.
    @inlinable
    public convenience init(
        path: FilePath, text policy: TextPolicy, into value: Value, on queue: DispatchQueue,
        options: Options = Options(), body: @escaping TextBody
    ) {
        self.init(InputStream(path: path), into: value, LineDelivery(policy, body), on: queue, options)
    }

    @usableFromInline
    init(
        _ stream: InputStream, into value: Value, _ delivery: LineDelivery<Value>, on queue: DispatchQueue,
        _ options: Options
    ) {
        var framer = LineFramer(
            terminator: options.terminator, limit: options.lineLimit, overflow: options.overflow)
        framer.checksUTF8 = options.checksUTF8
        let processor = LineProcessor(value, delivery, framer, isCancelled: isCancelled)
        handoff = ChunkHandoff(stream, to: processor, on: queue, limits: options.limits)
    }

    /// How far the reading has come. From any thread.
    public var progress: HandoffProgress { handoff.progress }

    /// Starts reading; see ``ChunkHandoff/start(inModes:progress:completion:)``.
    public func start(
        inModes modes: [RunLoop.Mode] = [.default], progress: ((HandoffProgress) -> Void)? = nil,
        completion: @escaping (HandoffReport<Output>) -> Void
    ) {
        handoff.start(inModes: modes, progress: progress, completion: completion)
    }

    /// Ends the reading after the line that the closure has in hand. From any thread, the closure included.
    ///
    /// The completion then reports ``HandoffReport/Ending/cancelled``, and ``Output`` how far it came.
    public func cancel() {
        handoff.cancel()
        isCancelled.raise()
    }

    /// Keeps lines from coming, and the stream from being read, until ``resume()``; see
    /// ``ChunkHandoff/suspend()``. From any thread, the closure included.
    ///
    /// The lines of the chunk that is being cut are still delivered: they fit in
    /// ``HandoffLimits/chunkSize`` bytes.
    public func suspend() { handoff.suspend() }

    /// Lets a suspended reading go on where it stopped; does nothing to others. From any thread.
    public func resume() { handoff.resume() }
}
