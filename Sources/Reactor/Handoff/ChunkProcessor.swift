/// Processes a stream's bytes, chunk by chunk, on a worker queue.
///
/// A processor belongs to the worker from the hand-off's start to its end: it needs no locks, and may be a
/// plain struct. Its ``output`` is then passed back to the run loop, however the hand-off ended.
///
/// ```swift
/// struct Checksum: ChunkProcessor {
///     var output: UInt64 = 0
///     mutating func process(_ chunk: RawSpan) throws {
///         for offset in chunk.byteOffsets {
///             output &+= UInt64(unsafe chunk.unsafeLoad(fromByteOffset: offset, as: UInt8.self))
///         }
///     }
/// }
/// ```
public protocol ChunkProcessor: SendableMetatype {
    /// The result for the loop.
    associatedtype Output: Sendable

    /// Processes the stream's next bytes. Called on the worker queue, one call at a time, in the order of the
    /// bytes.
    ///
    /// - Parameter chunk: At least one byte, borrowed for this call.
    /// - Throws: ``StopProcessing`` to end the hand-off without a failure, or any other error to fail it.
    mutating func process(_ chunk: RawSpan) throws

    /// Called once, after the last chunk. Not called after an error or a cancellation.
    ///
    /// - Throws: As ``process(_:)``.
    mutating func finish() throws

    /// The result. Read once, at the end; possibly off the queue if the hand-off was cancelled before the
    /// queue ran it, or failed to start.
    var output: Output { get }
}

extension ChunkProcessor {
    /// Does nothing.
    public mutating func finish() throws {}
}

/// Thrown by a processor that needs no more bytes. The hand-off ends without a failure.
public struct StopProcessing: Error, Sendable {
    /// Creates the error.
    public init() {}
}

/// The bounds of a hand-off's memory.
///
/// ```swift
/// let budget = ByteBudget(limit: 8_388_608)
/// let limits = HandoffLimits(chunkSize: 65_536, bytesInFlight: 262_144, budget: budget)
/// ```
public struct HandoffLimits: Sendable {
    /// The maximum number of bytes of one read, and of one call of the processor. Each chunk has memory for so many.
    public var chunkSize: Int
    /// The maximum number of bytes in chunks that are being read, waiting or being processed. At the limit the stream is
    /// not read until the worker has finished a chunk. At least one chunk is always allowed; no more than 32
    /// are used, however small they are.
    public var bytesInFlight: Int
    /// A limit that hand-offs share, if any.
    ///
    /// Without one, chunks are reused, and freed when the hand-off ends. With one, each is freed when it has
    /// been processed, so that an idle hand-off takes no memory.
    public var budget: ByteBudget?

    // The size was measured with the lines of a file: larger chunks save nothing more, and malloc(3) would
    // map each of them.

    /// Creates limits. By default two chunks of 96 KiB, and no budget. A file takes one chunk, whatever the
    /// limits.
    ///
    /// - Precondition: `chunkSize` is positive, and at most 2,147,479,552: Linux reads no more at once.
    public init(chunkSize: Int = 98_304, bytesInFlight: Int = 196_608, budget: ByteBudget? = nil) {
        self.chunkSize = chunkSize
        self.bytesInFlight = bytesInFlight
        self.budget = budget
        requireValid()
    }

    func requireValid() {
        let most = StreamEngine.mostBytes
        require(
            (1...most).contains(chunkSize),
            "HandoffLimits.chunkSize must be positive, and at most \(most): it is \(chunkSize).")
    }

    var chunkCount: Int { max(1, min(bytesInFlight / chunkSize, Self.mostChunks)) }

    /// A chunk takes up to 2 KB in addition to its bytes. More chunks than this don't reduce the number of
    /// wake-ups.
    private static let mostChunks = 32
}

/// The progress of a hand-off.
public struct HandoffProgress: Sendable, Hashable {
    /// The bytes that have been processed.
    public let byteCount: Int
    /// The total, as far as the stream knows: the size of a regular file when it was opened; nil once it
    /// turns out to be larger.
    public let expectedByteCount: Int?
}

/// Why a hand-off ended.
public enum HandoffEnding: Sendable {
    /// The stream's end was reached.
    case finished
    /// The processor threw ``StopProcessing``.
    case stopped
    /// ``ChunkHandoff/cancel()`` was called.
    case cancelled
    /// The stream failed (its ``Stream/streamError``), the hand-off could not read it (``IOError``), or the
    /// processor threw.
    case failed(any Error)
}

/// The result of a hand-off.
public struct HandoffReport<Output: Sendable>: Sendable {
    /// Why the hand-off ended.
    public let ending: HandoffEnding
    /// The processor's output when it ended.
    public let output: Output
    /// The bytes of the chunks that were processed, without a chunk that the processor threw in.
    public let byteCount: Int
}
