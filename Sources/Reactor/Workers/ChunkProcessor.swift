/// Works on a stream's bytes, chunk by chunk, on a worker queue.
///
/// A processor belongs to the worker from the hand-off's start to its end: it needs no locks, and may be a
/// plain struct. Its ``output`` then comes back to the run loop, whatever the ending.
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
    /// What comes back to the loop.
    associatedtype Output: Sendable

    /// Takes the stream's next bytes. Called on the worker queue, one call at a time, in the order of the
    /// bytes.
    ///
    /// - Parameter chunk: At least one byte, borrowed for this call.
    /// - Throws: ``StopProcessing`` to have no more; any other error is a failure. Either ends the hand-off.
    mutating func process(_ chunk: RawSpan) throws

    /// Takes that the stream has ended, after its last bytes. Not called after a fault or a cancellation.
    ///
    /// - Throws: As ``process(_:)``.
    mutating func finish() throws

    /// What there is to report now. Read once, at the end; perhaps off the queue after a cancellation, if the queue has
    /// not run the hand-off yet, and after a start that fails.
    var output: Output { get }
}

extension ChunkProcessor {
    /// Does nothing.
    public mutating func finish() throws {}
}

/// Thrown on a worker by code that has seen enough: the hand-off ends without a fault.
public struct StopProcessing: Error, Sendable {
    /// Makes the error.
    public init() {}
}

/// How a hand-off is bounded.
public struct HandoffLimits: Sendable {
    /// The most bytes that one read takes and one call processes.
    public var chunkSize: Int
    /// The most bytes of memory in chunks that are being read, waiting or being processed. At the cap the
    /// stream is not read until a worker has finished a chunk. At least one chunk is always allowed, and no more than
    /// 32 are used, however small they are.
    public var bytesInFlight: Int
    /// What all hand-offs with this budget may take together, if there is such a cap.
    ///
    /// Without one, chunks are used again, and freed at the hand-off's end; with one, each is freed when it has
    /// been processed, so that a hand-off whose stream is idle takes nothing.
    public var budget: ByteBudget?

    // The size was measured with lines of a file: larger chunks save nothing more, and malloc(3) would map each of them.

    /// Makes limits; the default is two chunks of 96 KiB, and no budget. A file takes one chunk, whatever the limits.
    ///
    /// - Precondition: `chunkSize` is positive.
    public init(chunkSize: Int = 98_304, bytesInFlight: Int = 196_608, budget: ByteBudget? = nil) {
        precondition(chunkSize > 0, "a chunk needs room for at least one byte")
        self.chunkSize = chunkSize
        self.bytesInFlight = bytesInFlight
        self.budget = budget
    }

    var chunkCount: Int { max(1, min(bytesInFlight / chunkSize, Self.mostChunks)) }

    /// A chunk takes up to 2 KB beside its bytes. With more chunks than this, both sides wake each other no less often
    /// than they have to anyway.
    private static let mostChunks = 32
}

/// How far a hand-off has come.
public struct HandoffProgress: Sendable, Hashable {
    /// The bytes that have been processed.
    public let byteCount: Int
    /// How many there will be, as far as the stream knows: what there was of a regular file when it was
    /// opened; nil once it turns out to have more.
    public let expectedByteCount: Int?
}

/// How a hand-off has ended, and what came of it.
public struct HandoffReport<Output: Sendable>: Sendable {
    /// Why no more is processed.
    public enum Ending: Sendable {
        /// The stream's end was reached.
        case finished
        /// The processor threw ``StopProcessing``.
        case stopped
        /// ``ChunkHandoff/cancel()`` was called.
        case cancelled
        /// The stream failed (an `Errno`), or the processor threw.
        case failed(any Error)
    }

    /// Why no more is processed.
    public let ending: Ending
    /// The processor's output when it ended.
    public let output: Output
    /// The bytes of the chunks that were processed: whole ones, without one that the processor threw in.
    public let byteCount: Int
}
