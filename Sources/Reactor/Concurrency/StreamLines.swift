import SystemPackage

extension InputStream {
    /// The stream's lines as text, for `for try await`.
    ///
    /// ```swift
    /// for try await line in InputStream(path: "/var/log/syslog").lines where line.contains("error") {
    ///     print(line)
    /// }
    /// ```
    ///
    /// As ``lines(text:terminator:limit:overflow:)`` with its defaults.
    public var lines: Lines { lines() }

    /// The stream's lines as text, for `for try await`.
    ///
    /// The task cuts the lines of a socket, a pipe or a terminal as their bytes arrive. A Dispatch queue reads
    /// and cuts a regular file, a few chunks ahead, as a ``LineReader`` does; the loop stays free. Memory is
    /// bounded by these chunks and by the longest line.
    ///
    /// An iteration that is left loses nothing: the stream goes on after the last line that it has returned.
    /// Only with `.truncate`, what was skipped of a line that has not been returned is gone.
    /// Leaving the lines of a file waits for a read of it that is under way. Closing the stream inside the
    /// iteration leaves the offset of a file behind the lines that were cut ahead: leave the iteration first,
    /// where another reader of the descriptor follows. Otherwise as ``chunks``.
    ///
    /// - Parameters:
    ///   - policy: What to do with a line that is not UTF-8. With `.report` the iteration fails with
    ///     ``InvalidText`` after the lines before it.
    ///   - terminator: What ends a line.
    ///   - limit: The most bytes of a line, without its terminator.
    ///   - overflow: What happens to a line of more bytes. With `.fail` the iteration fails with
    ///     ``LineFramer/LineTooLong`` after the lines before it.
    public func lines(
        text policy: TextPolicy = .repair, terminator: LineTerminator = .newline,
        limit: Int = LineFramer.defaultLimit, overflow: LineFramer.Overflow = .fail
    ) -> Lines {
        var framer = LineFramer(terminator: terminator, limit: limit, overflow: overflow)
        framer.checksUTF8 = true
        return Lines(stream: self, cutter: LineCutter(framer: framer, policy: policy))
    }

    /// The lines of a stream: ``InputStream/lines``.
    public struct Lines: AsyncSequence {
        fileprivate let stream: InputStream
        fileprivate let cutter: LineCutter
        fileprivate let tracker = LineProgress()

        /// How far the iteration has come, a chunk at a time. From any thread.
        public var progress: HandoffProgress { tracker.progress }

        /// Begins an iteration, and opens the stream if it is not open.
        ///
        /// - Precondition: No other task reads the stream.
        public func makeAsyncIterator() -> Iterator { Iterator(buffer: LineBuffer(stream, cutter, tracker)) }

        /// Returns one line after the other.
        public struct Iterator: AsyncIteratorProtocol {
            /// Nil after the end.
            @usableFromInline var buffer: LineBuffer?

            fileprivate init(buffer: LineBuffer) { self.buffer = buffer }

            /// The next line, without its terminator; nil at the end.
            @inlinable
            nonisolated(nonsending) public mutating func next() async throws -> String? {
                if let line = buffer?.take() { return line }
                return try await fill(isolation: #isolation)
            }

            /// The next line, without its terminator; nil at the end.
            @inlinable
            public mutating func next(isolation actor: isolated (any Actor)?) async throws -> String? {
                if let line = buffer?.take() { return line }
                return try await fill(isolation: actor)
            }

            /// Cuts more lines, and returns the first.
            @usableFromInline
            mutating func fill(isolation: isolated (any Actor)?) async throws -> String? {
                do {
                    if let line = try await buffer?.fill(isolation: isolation) { return line }
                    buffer = nil
                    return nil
                } catch {
                    buffer = nil
                    throw error
                }
            }
        }
    }
}

/// Cuts chunks into batches of lines. Pure.
struct LineCutter: Sendable {
    fileprivate var framer: LineFramer
    fileprivate let policy: TextPolicy

    /// Cuts the next chunk; an empty one is the end.
    fileprivate mutating func cut(_ chunk: [UInt8]) -> LineBatch {
        var batch = LineBatch(cutter: self, chunk: chunk)
        var lines: [String] = []
        do {
            if chunk.isEmpty {
                try framer.finish { bytes, line in
                    lines.append(try line.checkedText(bytes, policy))
                    return .more
                }
            } else {
                try push(chunk, &lines)
            }
        } catch { batch.failure = error }
        batch.lines = lines
        return batch
    }

    private mutating func push(_ chunk: [UInt8], _ lines: inout [String]) throws {
        let policy = policy
        try chunk.withBytes { bytes throws in
            _ = try framer.push(bytes) { bytes, line in
                lines.append(try line.checkedText(bytes, policy))
                return .more
            }
        }
    }
}

/// The lines that end in a chunk.
private struct LineBatch: Sendable {
    /// As it was before the chunk.
    let cutter: LineCutter
    let chunk: [UInt8]
    var lines: [String] = []
    /// Why no more lines follow.
    var failure: (any Error)?

    var isEnd: Bool { chunk.isEmpty }

    /// The bytes that are left when `count` lines have been returned.
    func rest(after count: Int) -> [UInt8] {
        guard count > 0 else { return cutter.framer.carry + chunk }
        guard !isEnd else { return [] }
        var framer = cutter.framer
        var left = count
        let taken = chunk.withBytes { bytes in
            try? framer.push(bytes) { _, _ in
                left -= 1
                return left == 0 ? .enough : .more
            }
        }
        return taken.map { framer.carry + chunk[$0...] } ?? []
    }
}

/// How far an iteration over lines has come.
private final class LineProgress: Sendable {
    private let state = Mutex(HandoffProgress(byteCount: 0, expectedByteCount: nil))

    var progress: HandoffProgress { state.withLock { $0 } }

    func expect(_ byteCount: Int?) {
        // Zero means unknown: procfs reports it for files that it generates while they are read.
        let byteCount = byteCount == 0 ? nil : byteCount
        state.withLock { $0 = HandoffProgress(byteCount: $0.byteCount, expectedByteCount: byteCount) }
    }

    func add(_ count: Int) {
        state.withLock { state in
            let sum = state.byteCount + count
            let expected = state.expectedByteCount.flatMap { $0 < sum ? nil : $0 }
            state = HandoffProgress(byteCount: sum, expectedByteCount: expected)
        }
    }
}

/// The lines that an iteration has cut and not returned.
@usableFromInline
final class LineBuffer {
    @usableFromInline var lines: [String] = []
    @usableFromInline var position = 0
    private let reader: EagerReader
    private let tracker: LineProgress
    private let worker: LineWorker?
    private var cutter: LineCutter
    private var batch: LineBatch

    fileprivate init(_ stream: InputStream, _ cutter: LineCutter, _ tracker: LineProgress) {
        reader = EagerReader(stream)
        (self.cutter, self.tracker) = (cutter, tracker)
        batch = LineBatch(cutter: cutter, chunk: [])
        let file = stream.engine.backend as? ReadAheadInput
        worker = file.map { _ in LineWorker(stream.engine, cutter) }
        tracker.expect(file?.expectedByteCount)
    }

    /// Puts the bytes after the last line back.
    deinit {
        let later = worker?.end() ?? []
        reader.engine.putBack(batch.rest(after: position) + later)
    }

    @inlinable
    func take() -> String? {
        guard position < lines.count else { return nil }
        defer { position &+= 1 }
        return lines[position]
    }

    fileprivate func fill(isolation: isolated (any Actor)?) async throws -> String? {
        while true {
            if let failure = batch.failure { throw failure }
            let next = try await nextBatch(isolation: isolation)
            guard !(next.isEnd && next.lines.isEmpty && next.failure == nil) else { return nil }
            tracker.add(next.chunk.count)
            (batch, lines, position) = (next, next.lines, 0)
            if let line = take() { return line }
        }
    }

    private func nextBatch(isolation: isolated (any Actor)?) async throws -> LineBatch {
        guard let worker else {
            var chunk: [UInt8] = []
            try await reader.read(into: &chunk, upTo: InputStream.defaultChunkSize, isolation: isolation)
            return cutter.cut(chunk)
        }
        try Task.checkCancellation()
        while true {
            if let batch = worker.take() { return batch }
            try await reader.use.wait(isolation: isolation, isScheduled: false) { worker.notify($0) }
        }
    }
}

/// Reads a file and cuts its lines on a Dispatch queue, up to two batches ahead.
private final class LineWorker: Sendable {
    fileprivate struct State {
        var cutter: LineCutter
        var batches: [LineBatch] = []
        var isWorking = false
        /// Whether the last batch has been cut, or no more are wanted.
        var isOver = false
        /// Wakes the task that waits for the next batch.
        var delegate: TaskDelegate?
    }

    /// One that the task consumes, and one that is ready then.
    fileprivate static let mostBatches = 2

    private let engine: StreamEngine
    private let state: Mutex<State>
    private let changed = Condition()

    init(_ engine: StreamEngine, _ cutter: LineCutter) {
        self.engine = engine
        state = Mutex(State(cutter: cutter))
    }

    /// The next batch; nil if the worker has to cut it first.
    func take() -> LineBatch? {
        let (batch, starts) = state.withLock { state -> (LineBatch?, Bool) in
            let batch = state.batches.isEmpty ? nil : state.batches.removeFirst()
            let starts = !state.isWorking && !state.isOver && state.batches.count < Self.mostBatches
            if starts { state.isWorking = true }
            // After the end there are only ends.
            let end = state.isOver ? LineBatch(cutter: state.cutter, chunk: []) : nil
            return (batch ?? end, starts)
        }
        if starts { DispatchWorkers.run { [self] in work() } }
        return batch
    }

    /// Wakes the task of `delegate` with the next batch; now, if there is one.
    func notify(_ delegate: TaskDelegate) {
        let isReady = state.withLock { state in
            state.delegate = delegate
            return !state.batches.isEmpty || state.isOver
        }
        if isReady { delegate.wakeTaskLater() }
    }

    /// Waits until the worker has ended, and returns the bytes that it has read and that no task has taken.
    func end() -> [UInt8] {
        while true {
            let generation = changed.generation
            let rest = state.withLock { state -> [UInt8]? in
                state.isOver = true
                return state.isWorking ? nil : state.batches.flatMap(\.chunk)
            }
            if let rest { return rest }
            changed.wait(after: generation)
        }
    }

    private func work() {
        while let cutter = state.withLock({ $0.next }) {
            let (batch, cutter) = readBatch(cutter)
            let delegate = state.withLock { state in
                state.cutter = cutter
                state.batches.append(batch)
                if batch.isEnd || batch.failure != nil { state.isOver = true }
                return state.delegate.take()
            }
            delegate?.wakeTaskLater()
        }
        changed.broadcast()
    }

    private func readBatch(_ cutter: LineCutter) -> (LineBatch, LineCutter) {
        var cutter = cutter
        var chunk: [UInt8] = []
        let count = chunk.append(upTo: HandoffLimits().chunkSize) { engine.read(into: &$0) }
        if count >= 0 { return (cutter.cut(chunk), cutter) }
        var batch = LineBatch(cutter: cutter, chunk: [])
        batch.failure = engine.failure
        return (batch, cutter)
    }
}

extension LineWorker.State {
    /// The cutter for another batch; nil if the worker has to end.
    fileprivate var next: LineCutter? {
        mutating get {
            if !isOver, batches.count < LineWorker.mostBatches { return cutter }
            isWorking = false
            return nil
        }
    }
}
