import CReactorLinux

/// Before each call of `body` the state is that of after the delivery, so that `body` may throw or return
/// `.enough`.
extension LineFramer {
    @usableFromInline typealias Body = (RawSpan, Line) throws -> Demand

    /// More capacity of the carry buffer than this is freed once the line that needed it has been delivered.
    static let keptCapacity = 1 << 16

    // MARK: A push

    @usableFromInline
    mutating func beginPush(_ bytes: RawSpan) throws {
        if let failure { throw failure }
        progress.position = 0
        // A terminator that is not ASCII may end a line inside a character.
        text = checksUTF8 && lastByte < 0x80 ? CheckedText(bytes) : CheckedText()
    }

    @usableFromInline
    mutating func endPush() { progress.byteCount += progress.position }

    // MARK: Ends of lines

    /// Delivers the line whose terminator's last byte may be at `index`.
    @usableFromInline
    mutating func endLine(at index: Int, in bytes: RawSpan, _ body: Body) throws -> Demand {
        let width = terminatorLength(endingAt: index, in: bytes)
        return width > 0 ? try endLine(width, at: index, in: bytes, body) : .more
    }

    /// Delivers a line that may have begun in an earlier push, or be too long.
    private mutating func endLine(
        _ width: Int, at index: Int, in bytes: RawSpan, _ body: Body
    ) throws -> Demand {
        while overflow != .truncate, pending(in: index + 1) - width > limit {
            if try deliverPiece(of: bytes, body) == .enough { return .enough }
        }
        let length = pending(in: index + 1) - width
        let isTruncated = isSkipping || length > limit
        let count = isTruncated ? limit : length
        let line = Line(
            number: lineCount + 1, offset: isTruncated ? progress.lineStart : pieceStart,
            terminatorLength: isTruncated ? 0 : width, ending: isTruncated ? .truncated : .terminated)
        let rest = bytes.extracting(progress.position..<index + 1)
        progress.position = index + 1
        closeLine(at: byteCount + index + 1, terminatorLength: width)
        if carry.isEmpty { return try body(rest.extracting(first: count), line) }
        append(rest.extracting(first: max(0, count - carry.count)))
        return try deliverCarried(count, line, body)
    }

    mutating func closeLine(at end: Int, terminatorLength: Int) {
        progress.lineCount += 1
        progress.longestLine = max(longestLine, end - terminatorLength - progress.lineStart)
        progress.lineStart = end
        isSkipping = false
    }

    /// The length of the terminator that ends at `index`; zero if there is none.
    private func terminatorLength(endingAt index: Int, in bytes: RawSpan) -> Int {
        if carriageReturn == .optional { return byte(at: index - 1, in: bytes) == .carriageReturn ? 2 : 1 }
        if sequence.count == 1 { return 1 }
        for distance in 1..<sequence.count
        where byte(at: index - distance, in: bytes) != sequence[sequence.count - 1 - distance] {
            return 0
        }
        return sequence.count
    }

    /// A pending byte, counted from the beginning of the push; nil before the pending ones.
    private func byte(at index: Int, in bytes: RawSpan) -> UInt8? {
        if index >= progress.position { return bytes[index] }
        let carried = carry.count + index - progress.position
        return carried < 0 ? nil : carry[carried]
    }

    // MARK: Lines that do not end in this push, or are too long

    /// Keeps the bytes after the last terminator, except those that `overflow` delivers or drops now.
    @usableFromInline
    mutating func carryRest(of bytes: RawSpan, _ body: Body) throws {
        while !isSkipping, pending(in: bytes.byteCount) >= overflowCount {
            if try deliverPiece(of: bytes, body) == .enough { return }
        }
        let rest = bytes.extracting(progress.position..<bytes.byteCount)
        progress.position = bytes.byteCount
        if isSkipping { skip(rest) } else { append(rest) }
    }

    /// Keeps those of `bytes`, in a line that is too long, that may begin a terminator.
    private mutating func skip(_ bytes: RawSpan) {
        let kept = terminator.greatestLength - 1
        let new = bytes.extracting(last: kept)
        let excess = carry.count - limit + new.byteCount - kept
        if excess > 0 { carry.removeSubrange(limit..<limit + excess) }
        append(new)
    }

    /// Applies `overflow` to the first `limit` pending bytes of a line that has more. A truncated line waits
    /// for its end, so that the offset after every delivery is where the next line begins.
    mutating func deliverPiece(of bytes: RawSpan, _ body: Body) throws -> Demand {
        if overflow == .fail { throw fail() }
        let line = Line(number: lineCount + 1, offset: pieceStart, terminatorLength: 0, ending: .continued)
        let start = progress.position
        progress.position += max(0, limit - carry.count)
        let taken = bytes.extracting(start..<progress.position)
        isSkipping = overflow == .truncate
        if !isSkipping, carry.isEmpty { return try body(taken, line) }
        append(taken)
        return isSkipping ? .more : try deliverCarried(limit, line, body)
    }

    private mutating func fail() -> LineTooLong {
        let error = LineTooLong(number: lineCount + 1, offset: progress.lineStart, limit: limit)
        failure = error
        progress.position = progress.lineStart - byteCount
        carry = []
        return error
    }

    /// The number of pending bytes when the push has `count`.
    private func pending(in count: Int) -> Int { carry.count + count - progress.position }

    /// The offset in the stream of the pending bytes.
    private var pieceStart: Int { byteCount + progress.position - carry.count }

    // MARK: The carry buffer

    private mutating func append(_ bytes: RawSpan) {
        let needed = carry.count + bytes.byteCount
        if needed > carry.capacity {
            let most = overflowCount
            carry.reserveCapacity(needed < limit ? max(needed, min(2 * carry.capacity, most)) : most)
        }
        carry.append(bytes)
    }

    mutating func deliverCarried(_ count: Int, _ line: Line, _ body: Body) throws -> Demand {
        defer { dropCarried(line.ending == .continued ? count : carry.count) }
        return try carry.withBytes { try body($0.extracting(first: count), line) }
    }

    mutating func dropCarried(_ count: Int) {
        carry.removeFirst(count)
        guard carry.capacity > Self.keptCapacity else { return }
        var rest: [UInt8] = []
        carry.withBytes { rest.append($0) }
        carry = rest
    }
}

/// The loop that most lines take. It is inlinable, so that the client's optimizer builds it around the
/// client's `body`: that saves a third of the time, measured with lines of 80 bytes.
extension LineFramer {
    /// Delivers the lines that end at `offsets` from `base`, where the last byte of the terminator was found.
    @inlinable
    mutating func endLines(
        at offsets: Span<UInt32>, from base: Int, in bytes: RawSpan,
        _ body: (RawSpan, Line) throws -> Demand
    ) throws -> Demand {
        var next = 0
        while next < offsets.count {
            if isPlain, try endPlainLines(at: offsets, &next, from: base, in: bytes, body) == .enough {
                return .enough
            }
            guard next < offsets.count else { break }
            next += 1
            if try endLine(at: base + Int(offsets[next - 1]), in: bytes, body) == .enough { return .enough }
        }
        return .more
    }

    /// Whether a line begins here, and the terminator is one byte, or one after a carriage return.
    @usableFromInline
    var isPlain: Bool {
        guard sequence.count == 1 || carriageReturn == .required else { return false }
        return carry.isEmpty && progress.lineStart == byteCount + progress.position
    }

    /// Delivers lines until one is too long.
    @inlinable
    mutating func endPlainLines(
        at offsets: Span<UInt32>, _ next: inout Int, from base: Int, in bytes: RawSpan,
        _ body: (RawSpan, Line) throws -> Demand
    ) throws -> Demand {
        var start = progress.position
        defer {
            progress.position = start
            progress.lineStart = progress.byteCount + start
        }
        while next < offsets.count {
            let index = unsafe base &+ Int(offsets[unchecked: next])  // offsets ascend within the bytes
            let mayReturn = carriageReturn != .ordinary && index > start
            let hasReturn =
                unsafe mayReturn
                && bytes.unsafeLoad(fromUncheckedByteOffset: index &- 1, as: UInt8.self) == .carriageReturn
            let end = hasReturn ? index &- 1 : index
            guard end &- start <= limit else { break }
            next += 1
            if !hasReturn, carriageReturn == .required { continue }
            let content = unsafe bytes.extracting(unchecked: Range(uncheckedBounds: (start, end)))
            let line = countLine(from: start, to: end, index &+ 1, text.validation(from: start, to: end))
            start = index &+ 1
            if try body(content, line) == .enough { return .enough }
        }
        return .more
    }

    @inlinable
    mutating func countLine(from start: Int, to end: Int, _ next: Int, _ validation: Validation) -> Line {
        progress.longestLine = max(progress.longestLine, end &- start)
        progress.lineCount &+= 1
        return Line(
            number: progress.lineCount, offset: progress.byteCount &+ start, terminatorLength: next &- end,
            ending: .terminated, validation: validation)
    }
}

/// Finds a byte in a span, a batch of offsets at a time.
@usableFromInline
struct ByteFinder {
    /// Large enough to make a batch's fixed cost small, and small enough to initialize for every short push.
    private static let batch = 256
    /// The maximum number of bytes of one scan: offsets in a batch have 32 bits.
    private static let window = 1 << 30

    private let wanted: UInt8
    private var next = 0
    /// Where the batch begins.
    @usableFromInline var start = 0
    /// The number of offsets.
    @usableFromInline var count = 0
    /// The offsets, from `start`.
    @usableFromInline var offsets = InlineArray<256, UInt32>(repeating: 0)

    @usableFromInline
    init(_ wanted: UInt8) { self.wanted = wanted }

    /// Finds the next batch. Returns false if there are no more.
    @usableFromInline
    mutating func advance(in bytes: RawSpan) -> Bool {
        count = 0
        while count == 0, next < bytes.byteCount {
            start = next
            let reach = min(bytes.byteCount - start, Self.window)
            count = scan(bytes.extracting(start..<start + reach))
            next = start + (count < Self.batch ? reach : Int(offsets[count - 1]) + 1)
        }
        return count > 0
    }

    private mutating func scan(_ bytes: RawSpan) -> Int {
        var target = offsets.mutableSpan
        return unsafe target.withUnsafeMutableBufferPointer { target in
            bytes.withAddress { unsafe reactor_find_bytes($0, $1, wanted, target.baseAddress, target.count) }
        }
    }
}

extension RawSpan {
    @inlinable
    subscript(offset: Int) -> UInt8 {
        unsafe unsafeLoad(fromByteOffset: offset, as: UInt8.self)  // bounds-checked
    }
}
