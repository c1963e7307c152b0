public import SystemPackage

/// Cuts a byte stream into lines. Pure: no descriptor, no loop, no clock.
///
/// A line within one push is delivered where it lies. Only a line that straddles pushes is copied, into a
/// reused buffer that never holds more than the limit and a terminator. The lines are the same however the
/// bytes arrive.
///
/// ```swift
/// var framer = LineFramer()
/// try framer.push(bytes) { line, place in
///     total += line.byteCount
///     return .more
/// }
/// ```
public struct LineFramer: Sendable {
    /// One mebibyte: longer than the lines of most text, and little memory for a connection.
    public static let defaultLimit = 1 << 20

    /// The terminator of a line.
    let terminator: LineTerminator
    /// The maximum number of bytes of a line, without its terminator.
    @usableFromInline let limit: Int
    /// The treatment of a line of more than `limit` bytes.
    let overflow: Overflow
    /// Whether to validate the bytes of each push as UTF-8 at once, which sets ``Line/isKnownUTF8`` for most
    /// lines. Validating line by line takes several times as long.
    package var checksUTF8: Bool

    let sequence: [UInt8]
    /// With so many pending bytes the line is too long, even if the last ones begin a terminator.
    let overflowCount: Int
    @usableFromInline let lastByte: UInt8
    @usableFromInline let carriageReturn: CarriageReturn

    @usableFromInline var progress = Progress()
    /// What is known of the current push.
    @usableFromInline var text = CheckedText()
    /// The pending bytes of earlier pushes; of a line that is being skipped, the first `limit` ones and the
    /// last few.
    var carry: [UInt8] = []
    /// Whether the current line is truncated and has not ended yet.
    var isSkipping = false
    var failure: LineTooLong?

    /// Creates a framer for the beginning of a stream.
    ///
    /// - Parameters:
    ///   - terminator: What ends a line.
    ///   - limit: The maximum number of bytes of a line, without its terminator. It bounds the memory that a stream
    ///     without terminators takes.
    ///   - overflow: What happens to a line of more bytes.
    ///   - checksUTF8: Whether to validate whole pushes as UTF-8: see `checksUTF8`.
    /// - Precondition: `limit` is positive; a terminator of bytes has at least one.
    public init(
        terminator: LineTerminator = .newline, limit: Int = defaultLimit, overflow: Overflow = .fail,
        checksUTF8: Bool = false
    ) {
        require(limit > 0, "LineFramer.limit must be positive, not \(limit).")
        require(!terminator.sequence.isEmpty, "LineTerminator.bytes needs at least one byte.")
        self.terminator = terminator
        self.limit = limit
        self.overflow = overflow
        self.checksUTF8 = checksUTF8
        sequence = terminator.sequence
        lastByte = sequence[sequence.count - 1]
        carriageReturn = terminator.carriageReturn
        let (sum, isTooMuch) = limit.addingReportingOverflow(terminator.greatestLength)
        overflowCount = isTooMuch ? .max : sum
    }

    /// Consumes the stream's next bytes, and calls `body` for each line that they end, in order.
    ///
    /// A line counts as delivered once `body` has been called, whether it returns or throws. When `body`
    /// throws or returns `.enough`, the framer consumes no more. To continue, push the bytes after those that
    /// were consumed; after a throw, `byteCount` tells how many there were.
    ///
    /// - Parameters:
    ///   - bytes: Any number of bytes, borrowed for this call.
    ///   - body: Receives the line without its terminator, borrowed until it returns, and its place.
    /// - Returns: The number of bytes consumed: all, unless `body` returned `.enough`.
    /// - Throws: The error of `body`; `LineTooLong` if `overflow` is `.fail`, and then at every later call.
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
    /// - Parameter body: As for `push`. If it returns `.enough` before the last piece of a line, call this
    ///   again.
    /// - Throws: As `push`.
    public mutating func finish(_ body: (RawSpan, Line) throws -> Demand) throws {
        let nothing: [UInt8] = []
        try nothing.withBytes { try beginPush($0) }
        defer { endPush() }
        while !isSkipping, carry.count > limit {
            if try nothing.withBytes({ try deliverPiece(of: $0, body) }) == .enough { return }
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
    /// The number of lines that have ended.
    package var lineCount: Int { progress.lineCount }

    /// The number of bytes consumed, including those of a line that has not ended. After `LineTooLong`, of
    /// those before that line.
    public var byteCount: Int { progress.byteCount }

    /// As ``byteCount``, without the bytes that wait for the rest of their line.
    var deliveredByteCount: Int { isSkipping ? progress.lineStart : byteCount - carry.count }

    /// The maximum number of bytes of a line so far, without its terminator and whatever the limit.
    package var longestLine: Int { progress.longestLine }

    @usableFromInline
    struct Progress: Sendable {
        @usableFromInline var lineCount = 0
        /// Of the pushes before the current one.
        @usableFromInline var byteCount = 0
        @usableFromInline var longestLine = 0
        /// The bytes consumed of the current push. Negative after a failure in a line that began before it.
        @usableFromInline var position = 0
        /// The offset in the stream of the current line.
        @usableFromInline var lineStart = 0
    }
}

extension LineFramer {
    /// The place of a line, or of a piece of one, in its stream, and how it ended.
    public struct Line: Sendable, Hashable {
        /// The line's number, from one. The pieces of one line share it.
        public let number: Int
        /// The offset of its first byte in the stream.
        public let offset: Int
        /// The length of its terminator; zero unless `ending` is `.terminated`.
        public let terminatorLength: Int
        /// What followed its last byte.
        public let ending: Ending
        @usableFromInline let validation: Validation

        @inlinable
        init(
            number: Int, offset: Int, terminatorLength: Int, ending: Ending, validation: Validation = .unknown
        ) {
            self.number = number
            self.offset = offset
            self.terminatorLength = terminatorLength
            self.ending = ending
            self.validation = validation
        }

        /// Whether the bytes are known to be UTF-8 and need no check. Always false if
        /// `checksUTF8` is. Ignored when lines are compared.
        @inlinable public var isKnownUTF8: Bool { validation != .unknown }

        /// Whether the two have the same place, and ended in the same way.
        public static func == (left: Self, right: Self) -> Bool {
            (left.number, left.offset, left.terminatorLength, left.ending)
                == (right.number, right.offset, right.terminatorLength, right.ending)
        }

        /// Hashes the place.
        public func hash(into hasher: inout Hasher) {
            hasher.combine(number)
            hasher.combine(offset)
        }
    }

    /// What follows the last byte of a delivery.
    @nonexhaustive public enum Ending: Sendable, Hashable {
        /// The terminator.
        case terminated
        /// The end of the stream.
        case unterminated
        /// More bytes of the same line, which are skipped (`Overflow.truncate`).
        case truncated
        /// More bytes of the same line, in the next delivery (`Overflow.split`).
        case continued
    }

    /// What to do with a line that exceeds the limit.
    @nonexhaustive public enum Overflow: Sendable, Hashable {
        /// Throw `LineTooLong`, after all earlier lines have been delivered.
        case fail
        /// Deliver the first `limit` bytes when the line has ended, and skip the others.
        case truncate
        /// Deliver pieces of `limit` bytes, and last the rest, which has at least one byte.
        ///
        /// A piece may end inside a character.
        case split
    }

    /// Whether the receiver wants another line.
    public enum Demand: Sendable, Hashable {
        case more
        case enough
    }

    /// A line exceeded the limit.
    public struct LineTooLong: ReactorError, Hashable {
        /// The line's number, from one.
        public let number: Int
        /// The offset of its first byte in the stream.
        public let offset: Int
        /// The maximum number of bytes that were allowed.
        public let limit: Int

        /// The line.
        public var subject: String { "line \(number)" }
        /// `Errno.messageTooLong`.
        public var errno: Errno? { .messageTooLong }
        /// The line, where it begins, and the limit.
        public var description: String { "\(subject), at offset \(offset), has more than \(limit) bytes" }
    }
}

/// The terminator of a line.
@nonexhaustive public enum LineTerminator: Sendable, Hashable {
    /// LF. A CR before it belongs to the line.
    case lineFeed
    /// LF, or CR LF: for text files of any origin. A CR anywhere else belongs to the line.
    case newline
    /// CR LF, as in most Internet protocols. A lone CR or LF belongs to the line.
    case carriageReturnLineFeed
    /// These bytes, at their first occurrence: "aab" ends the line "a" of "aaab".
    ///
    /// There must be at least one.
    case bytes([UInt8])
}

extension LineTerminator {
    /// The bytes that always end a line.
    var sequence: [UInt8] {
        switch self {
        case .lineFeed, .newline: [.lineFeed]
        case .carriageReturnLineFeed: [.carriageReturn, .lineFeed]
        case .bytes(let bytes): bytes
        }
    }

    var carriageReturn: CarriageReturn {
        switch self {
        case .newline: .optional
        case .carriageReturnLineFeed, .bytes([.carriageReturn, .lineFeed]): .required
        case .lineFeed, .bytes: .ordinary
        }
    }

    /// The longest terminator, in bytes.
    var greatestLength: Int { self == .newline ? 2 : sequence.count }
}

/// The role of a carriage return before the last byte of a terminator.
@usableFromInline
enum CarriageReturn: Sendable {
    case ordinary, optional, required
}

extension UInt8 {
    static var lineFeed: UInt8 { 0x0A }
    @inlinable static var carriageReturn: UInt8 { 0x0D }
}
