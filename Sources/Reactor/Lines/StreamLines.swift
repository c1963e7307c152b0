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
    /// The task cuts the lines as their bytes arrive. Its loop makes a pass after at most eight chunks of 64 KiB, so its timers
    /// and descriptors are served meanwhile; a ``LineReader`` leaves the loop out of the work. Memory is bounded by a few
    /// chunks, which are read ahead of a regular file, and by the longest line.
    ///
    /// An iteration that is left loses nothing: the stream continues after the last line that it has returned.
    /// Only with `.truncate`, what was skipped of a line that has not been returned is gone.
    /// Closing the stream inside the iteration leaves the offset of a file behind the chunk that was read: leave the iteration
    /// first, where another reader of the descriptor follows. Otherwise as ``chunks``.
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

    /// The next line.
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
    private var cutter: LineCutter

    fileprivate init(
        _ stream: InputStream, _ cutter: LineCutter, _ tracker: LineProgress, _ timeout: Duration?,
        _ shutdown: GracefulShutdown?
    ) {
        reader = EagerReader(stream, timeout: timeout, shutdown: shutdown, readsAhead: true)
        (self.cutter, self.tracker) = (cutter, tracker)
        batch = LineBatch(cutter: cutter, chunk: [])
        tracker.expect(FileSource(stream)?.file.expectedByteCount)
    }

    /// Puts the bytes after the last line back.
    deinit { reader.engine.putBack(batch.rest) }

    @usableFromInline
    func take() -> String? { reader.use.isOver ? nil : batch.next() }

    fileprivate func fill(isolation: isolated (any Actor)?) async throws -> String? {
        while !reader.use.isOver {
            if let failure = batch.failure { throw failure }
            var chunk: [UInt8] = []
            try await reader.read(into: &chunk, upTo: InputStream.defaultChunkSize, isolation: isolation)
            let next = cutter.cut(chunk)
            guard !(next.isEnd && next.lines.isEmpty && next.failure == nil) else { return nil }
            tracker.add(next.chunk.count)
            batch = next
            guard let line = take() else { continue }
            reader.use.endElement()
            return line
        }
        return nil
    }
}
