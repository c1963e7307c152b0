public import Dispatch

/// Reads a stream line by line on a Dispatch queue, while its run loop stays free.
///
/// A closure on the queue receives the lines in order, one at a time, as borrowed bytes. Only a line that
/// straddles two chunks is copied. The closure works on a value of its own, which needs no locks and is
/// passed back to the loop at the end.
///
/// ```swift
/// let (log, queue) = (InputStream(path: "/var/log/syslog"), DispatchQueue(label: "lines"))
/// let reader = LineReader(log, into: 0, on: queue) { count, line, place in
///     if line.byteCount > 80 { count += 1 }
/// }
/// reader.start { report in
///     print(report.output.value, "of", report.output.lineCount, "lines are long")
///     RunLoop.current.stop()
/// }
/// RunLoop.current.run(in: .default)
/// ```
///
/// It is a ``ChunkHandoff``, which starts, suspends, resumes and explains it. ``ChunkHandoff/cancel()`` ends it after the
/// current line; after ``ChunkHandoff/suspend()`` the remaining lines of the current chunk are still delivered.
///
/// A framer's limit of a line and the ``HandoffLimits`` bound the memory, whatever the file's size and however slow the
/// closure. A task that wants the lines themselves iterates over ``InputStream/lines``.
public typealias LineReader<Value: Sendable> = ChunkHandoff<LineOutput<Value>>

/// The result of a ``LineReader``.
public struct LineOutput<Value: Sendable>: Sendable {
    /// The closure's value.
    public let value: Value
    /// The number of lines delivered, including one that the closure threw in. A line in pieces counts
    /// once, when it has ended.
    public let lineCount: Int
    /// The number of bytes up to the end of the last delivery, with its terminator. Continue there after
    /// a stop, an error or a cancellation: no line is then lost or delivered twice. With
    /// ``LineFramer/Overflow/split`` it may be inside a line.
    public let byteCount: Int
    /// The maximum number of bytes of a line, without its terminator, including a line that was not delivered because
    /// it is not UTF-8.
    public let longestLine: Int
}

// MARK: - Reading lines

extension ChunkHandoff {
    /// Creates a reader of `stream` on the calling thread's loop.
    ///
    /// - Parameters:
    ///   - stream: An input that no other code reads. The reader opens it, and closes it at the end.
    ///   - value: The initial value for `body`.
    ///   - queue: The queue that calls `body`.
    ///   - framer: Cuts the lines; one that has not been used. The default suits text files of any origin.
    ///   - limits: The limits of the bytes in flight.
    ///   - body: Called on the queue for each line, which has no terminator, with its place. The bytes are borrowed until it
    ///     returns. Throwing ``StopProcessing`` ends the reading without a failure; any other error fails it.
    ///   - atEnd: Called on the queue after the last line, once, for example to save what the value has collected; not after an
    ///     error, a stop or a cancellation. It may throw as `body` does.
    @inlinable
    public convenience init<Value: Sendable>(
        _ stream: InputStream, into value: Value, on queue: DispatchQueue, framer: LineFramer = LineFramer(),
        limits: HandoffLimits = HandoffLimits(),
        body: @escaping @Sendable (inout Value, RawSpan, LineFramer.Line) throws -> Void,
        atEnd: (@Sendable (inout Value) throws -> Void)? = nil
    ) where Output == LineOutput<Value> {
        self.init(stream, into: value, LineDelivery(body), atEnd, on: queue, framer, limits)
    }

    /// Creates a reader of `stream`, as lines of text, on the calling thread's loop.
    ///
    /// - Parameters:
    ///   - stream: An input that no other code reads. The reader opens it, and closes it at the end.
    ///   - policy: What to do with a line that is not UTF-8. With `.fail` the reading fails with
    ///     ``InvalidText``, which has the line's number and offset, after all lines before it have been
    ///     delivered.
    ///   - value: The initial value for `body`.
    ///   - queue: The queue that calls `body`.
    ///   - framer: Cuts the lines; one that has not been used. The default suits text files of any origin.
    ///   - limits: The limits of the bytes in flight.
    ///   - body: Called on the queue for each line, which has no terminator, with its place. Throwing
    ///     ``StopProcessing`` ends the reading without a failure; any other error fails it.
    ///   - atEnd: Called on the queue after the last line, once, for example to save what the value has collected; not after an
    ///     error, a stop or a cancellation. It may throw as `body` does.
    @inlinable
    public convenience init<Value: Sendable>(
        _ stream: InputStream, text policy: TextPolicy, into value: Value, on queue: DispatchQueue,
        framer: LineFramer = LineFramer(), limits: HandoffLimits = HandoffLimits(),
        body: @escaping @Sendable (inout Value, String, LineFramer.Line) throws -> Void,
        atEnd: (@Sendable (inout Value) throws -> Void)? = nil
    ) where Output == LineOutput<Value> {
        self.init(stream, into: value, LineDelivery(policy, body), atEnd, on: queue, framer, limits)
    }

    @usableFromInline
    convenience init<Value: Sendable>(
        _ stream: InputStream, into value: Value, _ delivery: LineDelivery<Value>,
        _ atEnd: (@Sendable (inout Value) throws -> Void)?, on queue: DispatchQueue, _ framer: LineFramer,
        _ limits: HandoffLimits
    ) where Output == LineOutput<Value> {
        require(framer.byteCount == 0, "A LineReader needs a framer that has not been used.")
        let isCancelled = Flag()
        let processor = LineProcessor(value, delivery, atEnd, framer, isCancelled: isCancelled)
        self.init(stream, to: processor, on: queue, limits, isCancelled: isCancelled)
    }
}
