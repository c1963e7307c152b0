import Synchronization

/// How far a hand-off has come, and when to say so: a hundred times in all, or fifty times a second, whichever
/// is less.
final class HandoffLedger: Sendable {
    private struct Record {
        var byteCount = 0
        var expectedByteCount: Int?
        /// How many bytes, and which time, call for the next word.
        var nextMark = 0
        var nextTime = Int64.min
        var news: HandoffProgress?

        var progress: HandoffProgress {
            HandoffProgress(byteCount: byteCount, expectedByteCount: expectedByteCount)
        }
    }

    /// Faster than a person sees, and slower than a loop notices.
    private static let leastNanosecondsBetweenNews: Int64 = 20_000_000

    private let record = Mutex(Record())

    var progress: HandoffProgress { record.withLock { $0.progress } }

    /// Zero says nothing: that is the size of a file that the kernel makes up as it is read.
    func expect(_ byteCount: Int?) {
        record.withLock { $0.expectedByteCount = byteCount == 0 ? nil : byteCount }
    }

    /// Adds to what has been processed; true if that is news.
    func account(_ count: Int) -> Bool {
        record.withLock { record in
            record.byteCount += count
            if let expected = record.expectedByteCount, record.byteCount > expected {
                record.expectedByteCount = nil  // the file has grown: nobody knows by how much
            }
            guard count > 0, record.byteCount >= record.nextMark else { return false }
            let now = Deadline.now.uptimeNanoseconds
            guard now >= record.nextTime else { return false }
            record.nextTime = now + Self.leastNanosecondsBetweenNews
            record.nextMark = record.byteCount + (record.expectedByteCount ?? 0) / 100
            record.news = record.progress
            return true
        }
    }

    /// The last word, unless it has been taken.
    func takeNews() -> HandoffProgress? { record.withLock { $0.news.take() } }
}
