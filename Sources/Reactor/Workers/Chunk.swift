import Synchronization

/// A piece of a stream: as many bytes as were read, in memory that is used again. One side at a time has it
/// in hand.
final class Chunk: Sendable {
    @safe
    private struct Content: ~Copyable {
        /// Not initialised: a large chunk of a small stream takes no more pages than have been read into.
        var memory: UnsafeMutableRawBufferPointer
        var count = 0
        /// What has been found out about the bytes, if they are lines of text.
        var survey: LineSurvey?
        /// What the memory takes of a budget.
        private var credit: ByteCredit?

        init(size: Int, _ credit: consuming ByteCredit?) {
            unsafe memory = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 16)
            self.credit = credit
        }

        var bytes: UnsafeRawBufferPointer { unsafe UnsafeRawBufferPointer(rebasing: memory[..<count]) }

        /// Frees the memory, for which there is no use any more, and hands out what it took of the budget.
        mutating func free() -> ByteCredit? {
            unsafe memory.deallocate()
            unsafe memory = UnsafeMutableRawBufferPointer(start: nil, count: 0)
            count = 0
            survey = nil
            return credit.take()
        }

        /// The credit ends after the memory.
        deinit { unsafe memory.deallocate() }
    }

    private let content: Mutex<Content>

    init(size: Int, _ credit: consuming ByteCredit? = nil) { content = Mutex(Content(size: size, credit)) }

    /// Has `read` fill the memory, and returns what it does: how many bytes, if not negative.
    func fill(_ read: (UnsafeMutableRawBufferPointer) -> Int) -> Int {
        content.withLock { content in
            let result = unsafe read(content.memory)
            content.count = max(0, result)
            return result
        }
    }

    /// Finds the lines of text that `byte` ends, for whoever processes the chunk.
    func survey(endingAt byte: UInt8) {
        content.withLock { content in
            var survey = unsafe content.survey.take() ?? LineSurvey(upTo: content.memory.count)
            unsafe survey.update(content.bytes.bytes, endingAt: byte)
            content.survey = survey
        }
    }

    /// Calls `body` with the bytes, and what is known of their lines; how many they are.
    func process(_ body: (RawSpan, LineSurvey?) throws -> Void) rethrows -> Int {
        try content.withLock { content in
            try unsafe body(content.bytes.bytes, content.survey)
            return content.count
        }
    }

    /// Frees the memory now, though somebody may still hold this.
    func free() { _ = content.withLock { $0.free() } }
}
