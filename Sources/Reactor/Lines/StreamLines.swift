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
    /// As ``lines(text:terminator:limit:overflow:timeout:shutdown:)`` with its defaults.
    public var lines: Lines { lines() }

    /// The stream's lines as text, for `for try await`.
    ///
    /// The task cuts the lines of a socket, a pipe or a terminal as their bytes arrive. A Dispatch queue reads
    /// and cuts a regular file, a few chunks ahead, as a ``LineReader`` does; the loop stays free. Memory is
    /// bounded by these chunks and by the longest line.
    ///
    /// An iteration that is left loses nothing: the stream continues after the last line that it has returned.
    /// Only with `.truncate`, what was skipped of a line that has not been returned is gone.
    /// Leaving the lines of a file waits for a read of it that is in progress. Closing the stream inside the
    /// iteration leaves the offset of a file behind the lines that were cut ahead: leave the iteration first,
    /// where another reader of the descriptor follows. Otherwise as ``chunks``.
    ///
    /// - Parameters:
    ///   - policy: What to do with a line that is not UTF-8. With `.fail` the iteration fails with
    ///     ``InvalidText`` after the lines before it.
    ///   - terminator: What ends a line.
    ///   - limit: The maximum number of bytes of a line, without its terminator.
    ///   - overflow: What happens to a line of more bytes. With `.fail` the iteration fails with
    ///     ``LineFramer/LineTooLong`` after the lines before it.
    ///   - timeout: How long each line may take to arrive with its terminator, from the call of `next()`; nil for no limit.
    ///     After it the iteration throws ``IOError`` with ``IOError/Reason/waitTimedOut``, and has ended; the part of the line
    ///     that has come stays with the stream.
    ///   - shutdown: Ends the iteration when it begins, also while the next element is awaited; nil for nothing. What has come
    ///     of further elements stays with the stream.
    public func lines(
        text policy: TextPolicy = .repair, terminator: LineTerminator = .newline,
        limit: Int = LineFramer.defaultLimit, overflow: LineFramer.Overflow = .fail, timeout: Duration? = nil,
        shutdown: GracefulShutdown? = nil
    ) -> Lines {
        var framer = LineFramer(terminator: terminator, limit: limit, overflow: overflow)
        framer.checksUTF8 = true
        return Lines(
            stream: self, cutter: LineCutter(framer: framer, policy: policy), timeout: timeout,
            shutdown: shutdown)
    }

    /// The lines of a stream: ``InputStream/lines``.
    public struct Lines: AsyncSequence {
        fileprivate let stream: InputStream
        fileprivate let cutter: LineCutter
        fileprivate let timeout: Duration?
        fileprivate let shutdown: GracefulShutdown?
        fileprivate let tracker = LineProgress()

        /// How far the iteration has come, a chunk at a time. From any thread.
        public var progress: HandoffProgress { tracker.progress }

        /// Begins an iteration, and opens the stream if it is not open.
        ///
        /// - Precondition: No other task reads the stream.
        public func makeAsyncIterator() -> Iterator {
            Iterator(buffer: LineBuffer(stream, cutter, tracker, timeout, shutdown))
        }

        /// Returns one line after the other.
        public struct Iterator: AsyncIteratorProtocol {
            /// Nil after the end, or an error.
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
                guard let buffer = buffer.take(), let line = try await buffer.fill(isolation: isolation)
                else {
                    return nil
                }
                self.buffer = buffer
                return line
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
        let start = framer.byteCount
        let policy = policy
        do {
            if chunk.isEmpty {
                try framer.finish { bytes, line in
                    batch.append(try line.checkedText(bytes, policy))
                    return .more
                }
            } else {
                batch.lines.reserveCapacity(chunk.count / Self.expectedLength)
                try chunk.withBytes { bytes throws in
                    _ = try framer.push(bytes) { bytes, line in
                        // A line that began in an earlier chunk is not in this one.
                        if line.isKnownUTF8, line.offset >= start {
                            batch.append(line, at: line.offset - start, bytes.byteCount)
                        } else {
                            batch.append(try line.checkedText(bytes, policy))
                        }
                        return .more
                    }
                }
            }
        } catch { batch.failure = error }
        return batch
    }

    /// The table of a chunk's lines grows twice if they are a quarter as long.
    private static var expectedLength: Int { 64 }
}

/// The lines that end in a chunk.
private struct LineBatch: Sendable {
    /// A line in the chunk, or the index of a text with a count of ``isText``.
    struct LineRange {
        static let isText = UInt32.max

        let start: UInt32
        let count: UInt32
    }

    /// As it was before the chunk.
    let cutter: LineCutter
    let chunk: [UInt8]
    var lines: [LineRange] = []
    /// How many lines have been returned.
    private var position = 0
    /// Lines that do not lie in the chunk, or that had to be checked by themselves.
    private var texts: [String] = []
    /// Whether the lines in the chunk are ASCII: they are known to be UTF-8.
    private var isASCII = false
    /// Why no more lines follow.
    var failure: (any Error)?

    init(cutter: LineCutter, chunk: [UInt8]) { (self.cutter, self.chunk) = (cutter, chunk) }

    var isEnd: Bool { chunk.isEmpty }

    mutating func append(_ line: LineFramer.Line, at start: Int, _ count: Int) {
        isASCII = line.validation == .ascii
        lines.append(LineRange(start: UInt32(start), count: UInt32(count)))
    }

    mutating func append(_ text: String) {
        lines.append(LineRange(start: UInt32(texts.count), count: LineRange.isText))
        texts.append(text)
    }

    /// The next line. Its text is made here, on the thread that will free it: memory that another thread frees
    /// costs more than all else about a line.
    mutating func next() -> String? {
        guard position < lines.count else { return nil }
        defer { position += 1 }
        return text(position)
    }

    private func text(_ index: Int) -> String {
        let (start, count) = (Int(lines[index].start), lines[index].count)
        if count == LineRange.isText { return texts[start] }
        return chunk.withBytes { bytes in
            unsafe String(unchecked: bytes.extracting(start..<start + Int(count)), isKnownASCII: isASCII)
        }
    }

    /// The bytes after the line that was returned last.
    var rest: [UInt8] {
        guard position > 0 else { return cutter.framer.carry + chunk }
        guard !isEnd else { return [] }
        var framer = cutter.framer
        var left = position
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
    private let tracker = Mutex(ProgressTracker())

    var progress: HandoffProgress { tracker.withLock { $0.progress } }

    func expect(_ byteCount: Int?) { tracker.withLock { $0.expect(byteCount) } }

    func add(_ count: Int) { tracker.withLock { $0.add(count) } }
}

/// The lines that an iteration has cut and not returned.
@usableFromInline
final class LineBuffer {
    private var batch: LineBatch
    private let reader: EagerReader
    private let tracker: LineProgress
    private let worker: LineWorker?
    private var cutter: LineCutter

    fileprivate init(
        _ stream: InputStream, _ cutter: LineCutter, _ tracker: LineProgress, _ timeout: Duration?,
        _ shutdown: GracefulShutdown?
    ) {
        reader = EagerReader(stream, timeout: timeout, shutdown: shutdown, readsAhead: true)
        (self.cutter, self.tracker) = (cutter, tracker)
        batch = LineBatch(cutter: cutter, chunk: [])
        let source = FileSource(stream)
        worker = source.map { LineWorker($0, cutter) }
        tracker.expect(source?.file.expectedByteCount)
    }

    /// Puts the bytes after the last line back.
    deinit {
        let later = worker?.end() ?? []
        reader.engine.putBack(batch.rest + later)
    }

    @usableFromInline
    func take() -> String? { reader.use.isOver ? nil : batch.next() }

    fileprivate func fill(isolation: isolated (any Actor)?) async throws -> String? {
        while !reader.use.isOver {
            if let failure = batch.failure { throw failure }
            let next = try await nextBatch(isolation: isolation)
            guard !(next.isEnd && next.lines.isEmpty && next.failure == nil) else { return nil }
            tracker.add(next.chunk.count)
            batch = next
            guard let line = take() else { continue }
            reader.use.endElement()
            return line
        }
        return nil
    }

    private func nextBatch(isolation: isolated (any Actor)?) async throws -> LineBatch {
        guard let worker else {
            var chunk: [UInt8] = []
            try await reader.read(into: &chunk, upTo: InputStream.defaultChunkSize, isolation: isolation)
            return cutter.cut(chunk)
        }
        return try await reader.use.next(
            isolation: isolation, isScheduled: false, preparing: { worker.notify($0) }, worker.take)
    }
}

/// Reads a file and cuts its lines on a Dispatch queue, a few batches ahead.
private final class LineWorker: Sendable {
    fileprivate struct State {
        var cutter: LineCutter
        /// The worker stops when it is full, and starts again when it is half empty: a start costs more than a batch.
        var batches = BoundedQueue<[LineBatch], Never>(limit: 8)
        var isWorking = false
        /// Wakes the task that waits for the next batch.
        var delegate: UnparkingDelegate?
    }

    private let source: FileSource
    private let state: Mutex<State>
    private let changed = EventCount()

    init(_ source: FileSource, _ cutter: LineCutter) {
        self.source = source
        state = Mutex(State(cutter: cutter))
    }

    /// The next batch; nil if the worker has to cut it first.
    func take() -> LineBatch? {
        let (batch, starts) = state.withLock { state -> (LineBatch?, Bool) in
            let batch = state.batches.takeFirst()
            let starts = !state.isWorking && state.batches.hasRoom && state.batches.contents.count <= 4
            if starts { state.isWorking = true }
            // After the end there are only ends.
            let end = state.batches.isOpen ? nil : LineBatch(cutter: state.cutter, chunk: [])
            return (batch ?? end, starts)
        }
        if starts { DispatchWorkers.run { [self] in work() } }
        return batch
    }

    /// Wakes the task of `delegate` with the next batch; after a pass of its loop, if there is one.
    func notify(_ delegate: UnparkingDelegate) {
        let isReady = state.withLock { state in
            let isReady = state.batches.hasResult
            state.delegate = isReady ? nil : delegate
            return isReady
        }
        if isReady { delegate.unparkTaskAfterPass() }
    }

    /// Waits until the worker has ended, and returns the bytes that it has read and that no task has taken.
    func end() -> [UInt8] {
        changed.wait {
            state.withLock { state in
                state.batches.end()
                return state.isWorking ? nil : state.batches.contents.flatMap(\.chunk)
            }
        }
    }

    private func work() {
        repeat { readBatches() } while !state.withLock { $0.endWork() }
        changed.broadcast()
    }

    private func readBatches() {
        var reader = source.file.takeReader()
        var cutter = state.withLock { $0.next }
        while let current = cutter {
            let (batch, new) = readBatch(current, by: &reader)
            let (delegate, next) = state.withLock { state in
                state.put(batch, new)
                return (state.delegate.take(), state.next)
            }
            delegate?.unparkTaskLater()
            cutter = next
        }
    }

    private func readBatch(_ cutter: LineCutter, by reader: inout FileReader) -> (LineBatch, LineCutter) {
        var (cutter, chunk): (LineCutter, [UInt8]) = (cutter, [])
        do throws(Errno) {
            let count = try source.append(to: &chunk, upTo: HandoffLimits().chunkSize, by: &reader)
            source.file.advance(by: count)
            return (cutter.cut(chunk), cutter)
        } catch {
            var batch = LineBatch(cutter: cutter, chunk: [])
            batch.failure = source.engine.failure
            return (batch, cutter)
        }
    }
}

extension LineWorker.State {
    /// The cutter for another batch; nil if the worker has to end.
    fileprivate var next: LineCutter? { batches.hasRoom ? cutter : nil }

    fileprivate mutating func put(_ batch: LineBatch, _ cutter: LineCutter) {
        self.cutter = cutter
        batches.put(batch)
        if batch.isEnd || batch.failure != nil { batches.end() }
    }

    /// Ends the worker, which has returned the file's reader; false if another batch is wanted by now.
    fileprivate mutating func endWork() -> Bool {
        isWorking = next != nil
        return !isWorking
    }
}
