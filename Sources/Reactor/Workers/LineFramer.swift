/// Cuts a byte stream into lines. Pure: no descriptor, no loop, no clock.
///
/// A line that lies within one push is handed out where it lies. Only a line that straddles pushes is copied,
/// into a buffer that is used again and never holds more than the limit and a terminator. The lines are the
/// same however the bytes arrive.
///
/// ```swift
/// var framer = LineFramer()
/// try framer.push(bytes) { line, place in
///     total += line.byteCount
///     return .more
/// }
/// ```
public struct LineFramer: Sendable {
    /// One mebibyte: longer than lines that people and programs write, and little for a connection.
    public static let defaultLimit = 1 << 20

    /// What ends a line.
    public let terminator: LineTerminator
    /// The most bytes of a line, without its terminator.
    public let limit: Int
    /// What happens to a line of more bytes than `limit`.
    public let overflow: Overflow
    /// Whether the bytes of each push are checked for being UTF-8, at once, which tells it of most lines that lie in
    /// them: ``Line/isKnownUTF8``. Checking line by line takes several times as long.
    public var checksUTF8 = false

    let sequence: [UInt8]
    /// How many pending bytes are certainly too many, even if the last ones begin a terminator.
    let overflowCount: Int
    @usableFromInline let lastByte: UInt8
    @usableFromInline let carriageReturn: CarriageReturn

    @usableFromInline var progress = Progress()
    /// What is known of the push under way.
    @usableFromInline var text = CheckedText()
    /// The pending bytes of earlier pushes; of a line that is being skipped, the first `limit` ones and the last few.
    var carry: [UInt8] = []
    /// Whether a line that is to be truncated has not ended yet.
    var isSkipping = false
    var failure: LineTooLong?

    /// Makes a framer at the beginning of a stream.
    ///
    /// - Parameters:
    ///   - terminator: What ends a line.
    ///   - limit: The most bytes of a line, without its terminator. It bounds the memory that a stream
    ///     without terminators can take.
    ///   - overflow: What happens to a line of more bytes.
    /// - Precondition: `limit` is positive; a terminator of bytes has some.
    public init(
        terminator: LineTerminator = .newline, limit: Int = defaultLimit, overflow: Overflow = .fail
    ) {
        precondition(limit > 0, "a line framer needs a limit of at least one byte")
        precondition(!terminator.sequence.isEmpty, "a line terminator needs at least one byte")
        self.terminator = terminator
        self.limit = limit
        self.overflow = overflow
        sequence = terminator.sequence
        lastByte = sequence[sequence.count - 1]
        carriageReturn = terminator.carriageReturn
        let (sum, isTooMuch) = limit.addingReportingOverflow(terminator.greatestLength)
        overflowCount = isTooMuch ? .max : sum
    }

    /// Takes the stream's next bytes, and calls `body` for each line that they end, in order.
    ///
    /// A line counts as delivered once `body` has been called, whether it returns or throws. When it throws
    /// or has enough, the framer takes no more. To go on, push what comes after the bytes that were taken;
    /// after a throw, `byteCount` tells how many they were.
    ///
    /// - Parameters:
    ///   - bytes: Any number of bytes, borrowed for this call.
    ///   - body: Receives the line without its terminator, borrowed until it returns, and its place.
    /// - Returns: How many of `bytes` were taken: all, unless `body` had enough.
    /// - Throws: What `body` throws; `LineTooLong` as `overflow` demands, and then at every later call.
    @inlinable
    @discardableResult
    public mutating func push(_ bytes: RawSpan, _ body: (RawSpan, Line) throws -> Demand) throws -> Int {
        try beginPush(bytes)
        defer { endPush() }
        var finder = ByteFinder(lastByte)
        while finder.advance(in: bytes) {
            let offsets = finder.offsets.span.extracting(first: finder.count)
            if try endLines(at: offsets, from: finder.start, in: bytes, body) == .enough {
                return progress.position
            }
        }
        try carryRest(of: bytes, body)
        return progress.position
    }

    /// Delivers a last line without a terminator, if the stream ends in one.
    ///
    /// - Parameter body: As for `push`. When it has enough of a line's pieces, call again for the others.
    /// - Throws: As `push`.
    public mutating func finish(_ body: (RawSpan, Line) throws -> Demand) throws {
        let nothing: [UInt8] = []
        try unsafe beginPush(nothing.span.bytes)
        defer { endPush() }
        while !isSkipping, carry.count > limit {
            if try unsafe deliverPiece(of: nothing.span.bytes, body) == .enough { return }
        }
        guard progress.lineStart < byteCount else { return }
        let count = min(carry.count, limit)
        let line = Line(
            number: lineCount + 1, offset: deliveredByteCount, terminatorLength: 0,
            ending: isSkipping ? .truncated : .unterminated)
        closeLine(at: byteCount, terminatorLength: 0)
        if count > 0 { _ = try deliverCarried(count, line, body) }
        dropCarried(carry.count)
    }
}

extension LineFramer {
    /// The lines that have ended so far.
    public var lineCount: Int { progress.lineCount }

    /// The bytes taken so far, those of a line that has not ended included. After a failure, those before the
    /// line that was too long.
    public var byteCount: Int { progress.byteCount }

    /// As ``byteCount``, without those that wait for the rest of their line.
    var deliveredByteCount: Int { isSkipping ? progress.lineStart : byteCount - carry.count }

    /// The most bytes that a line had so far, without its terminator and whatever the limit.
    public var longestLine: Int { progress.longestLine }

    @usableFromInline
    struct Progress: Sendable {
        @usableFromInline var lineCount = 0
        /// Of the pushes before the one under way.
        @usableFromInline var byteCount = 0
        @usableFromInline var longestLine = 0
        /// The bytes taken of the push under way. Negative after a failure in a line that began before it.
        @usableFromInline var position = 0
        /// Where in the stream the current line began.
        @usableFromInline var lineStart = 0
    }
}
