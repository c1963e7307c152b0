/// Counts processed bytes, and decides when to report progress: a hundred times in all, or fifty times a
/// second, whichever is less.
struct ProgressTracker: Sendable {
    /// 20 ms: faster than a person sees, and rare enough not to load the loop.
    private static let leastInterval: Int64 = 20_000_000

    private var byteCount = 0
    private var expectedByteCount: Int?
    /// The next report is due at this many bytes, and not before this time.
    private var nextByteCount = 0
    private var nextTime = Int64.min
    private var pending: HandoffProgress?

    var progress: HandoffProgress {
        HandoffProgress(byteCount: byteCount, expectedByteCount: expectedByteCount)
    }

    /// Sets the stream's size. Zero means unknown: procfs reports it for files that it generates while they
    /// are read.
    mutating func expect(_ byteCount: Int?) { expectedByteCount = byteCount == 0 ? nil : byteCount }

    /// Adds processed bytes.
    mutating func add(_ count: Int) {
        byteCount += count
        if let expected = expectedByteCount, byteCount > expected {
            expectedByteCount = nil  // the file has grown by an unknown amount
        }
    }

    /// Adds processed bytes. Returns whether a report is due.
    mutating func add(_ count: Int, at clock: () -> Int64) -> Bool {
        add(count)
        guard count > 0, byteCount >= nextByteCount else { return false }
        nextByteCount = byteCount + (expectedByteCount ?? 0) / 100
        let now = clock()
        guard now >= nextTime else { return false }
        nextTime = now + Self.leastInterval
        pending = progress
        return true
    }

    /// The progress to report, once.
    mutating func takeProgress() -> HandoffProgress? { pending.take() }
}
