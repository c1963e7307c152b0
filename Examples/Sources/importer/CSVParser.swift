import Glibc

/// Assembles the records of comma-separated values (RFC 4180) from a file's lines. A pure value: push a line,
/// then take the records that it completes.
///
/// A quoted field may have commas, doubled quotes and line breaks. A quote inside an unquoted field is an
/// ordinary character. A carriage return at the end of a record, empty lines and a byte-order mark are
/// skipped.
///
/// A record that is not well-formed has a ``CSVRecord/Fault``, and the next line begins a new record. If a
/// quote that a line opens is not closed as it should be within ``limit`` bytes, only that line is lost: the
/// lines after it are parsed again. Each line is parsed at most twice: whether a quote that is open before a
/// line is open after it does not depend on the line that opened it.
struct CSVParser: Sendable {
    /// A record with more bytes in several lines is taken for an unclosed quote: it would otherwise swallow
    /// the rest of the file, and the memory.
    static let limit = 65_536

    private enum Place { case fieldStart, unquoted, quoted, afterQuote }

    private struct Line {
        let bytes: [UInt8]
        /// False if its end has been cut off.
        let isWhole: Bool
    }

    private var record = CSVRecord()
    private var place = Place.fieldStart
    /// Whether ``record`` is complete and has not been taken.
    private var isComplete = false
    private var isAtEnd = false

    /// The lines that are part of no complete record, the number of the first, and their length.
    private var lines: ArraySlice<Line> = []
    private var firstNumber = 0
    private var byteCount = 0
    /// Whether the first of these lines opens a quote that the others do not close.
    private var isOpen = false
    /// Whether the last of them has text after a closing quote, or is not whole: no quote before it is closed.
    private var isBroken = false

    /// Parses a file's next line. Requires that ``next()`` has returned nil.
    ///
    /// - Parameters:
    ///   - line: The line without its line feed.
    ///   - number: The line's number, from one.
    ///   - isWhole: False if the line's end has been cut off. Its record is then faulty.
    mutating func push(_ line: RawSpan, number: Int, isWhole: Bool = true) {
        let markLength = number == 1 && line.hasByteOrderMark ? 3 : 0
        let line = line.extracting(droppingFirst: markLength)
        if isOpen {
            extend(by: line, isWhole: isWhole)
        } else {
            begin(with: line, number: number, isWhole: isWhole)
            if isOpen {
                firstNumber = number
                keep(line, isWhole: true)
            }
        }
    }

    /// Ends the file: ``next()`` also returns the records of a field that has no end.
    mutating func end() { isAtEnd = true }

    /// Returns the next record that is complete; nil if another line is needed.
    mutating func next() -> CSVRecord? {
        while !isComplete, let first = lines.first {
            if !isOpen {
                unsafe begin(with: first.bytes.span.bytes, number: firstNumber, isWhole: first.isWhole)
                if !isOpen { dropFirstLine() }
            } else if isBroken || isAtEnd || byteCount > Self.limit {
                record.begin(atLine: firstNumber)
                complete(.unclosedQuote)
                dropFirstLine()
                isOpen = false
            } else {
                return nil
            }
        }
        guard isComplete else { return nil }
        isComplete = false
        return record
    }

    // MARK: Records

    /// Parses the first line of a record, which completes it or opens a quote.
    private mutating func begin(with line: RawSpan, number: Int, isWhole: Bool) {
        if line.trimmedCount == 0 { return }
        record.begin(atLine: number)
        guard isWhole else { return complete(.lineTooLong) }
        place = .fieldStart
        parse(line)
        isOpen = place == .quoted
        if !isOpen { complete(record.fault) }
    }

    /// Parses a further line of a record with an open quote.
    private mutating func extend(by line: RawSpan, isWhole: Bool) {
        place = .quoted
        parse(line)
        isBroken = !isWhole || record.fault != nil
        guard !isBroken, place != .quoted else { return keep(line, isWhole: isWhole) }
        // From its first line: `record` may lack lines that were kept for an earlier one.
        record.begin(atLine: firstNumber)
        place = .fieldStart
        for line in lines {
            unsafe parse(line.bytes.span.bytes)
            record.append(UInt8(ascii: "\n"))
        }
        parse(line)
        complete(record.fault)
        (lines, byteCount, isOpen) = ([], 0, false)
    }

    private mutating func complete(_ fault: CSVRecord.Fault?) {
        record.fault = fault
        record.checkText()
        isComplete = true
    }

    private mutating func keep(_ line: RawSpan, isWhole: Bool) {
        lines.append(Line(bytes: unsafe line.withUnsafeBytes { unsafe Array($0) }, isWhole: isWhole))
        byteCount += line.byteCount + 1
    }

    private mutating func dropFirstLine() {
        byteCount -= (lines.popFirst()?.bytes.count ?? 0) + 1
        firstNumber += 1
        // The last line itself may open a quote that a later line closes.
        if lines.count <= 1 { isBroken = false }
    }

    // MARK: One line

    private mutating func parse(_ line: RawSpan) {
        // The carriage return of a quoted line break belongs to the field.
        var offset = 0
        while offset < line.byteCount, record.fault == nil { offset = step(line, from: offset) }
        if place == .quoted || record.fault != nil { return }
        endField()  // also after a last comma, which begins an empty field
    }

    /// Parses up to the next comma or quote that matters, and returns the offset after it.
    private mutating func step(_ line: RawSpan, from start: Int) -> Int {
        switch place {
        case .fieldStart:
            place = line[start] == .quote ? .quoted : .unquoted
            return place == .quoted ? start + 1 : start
        case .unquoted:
            guard let comma = line.firstOffset(of: .comma, from: start) else {
                record.append(line.extracting(start..<line.trimmedCount))
                return line.byteCount
            }
            record.append(line.extracting(start..<comma))
            endField()
            return comma + 1
        case .quoted:
            let quote = line.firstOffset(of: .quote, from: start)
            record.append(line.extracting(start..<(quote ?? line.byteCount)))
            if quote != nil { place = .afterQuote }
            return (quote ?? line.byteCount) + 1
        case .afterQuote: return stepAfterQuote(line, from: start)
        }
    }

    private mutating func stepAfterQuote(_ line: RawSpan, from start: Int) -> Int {
        if start == line.trimmedCount { return line.byteCount }
        switch line[start] {
        case .quote:
            record.append(.quote)
            place = .quoted
        case .comma: endField()
        default: record.fault = .textAfterQuote
        }
        return start + 1
    }

    private mutating func endField() {
        record.endField()
        place = .fieldStart
    }
}

extension UInt8 {
    fileprivate static var quote: UInt8 { UInt8(ascii: "\"") }
    fileprivate static var comma: UInt8 { UInt8(ascii: ",") }
    fileprivate static var carriageReturn: UInt8 { UInt8(ascii: "\r") }
}

extension RawSpan {
    fileprivate subscript(offset: Int) -> UInt8 { unsafe unsafeLoad(fromByteOffset: offset, as: UInt8.self) }

    func firstOffset(of byte: UInt8, from start: Int) -> Int? {
        unsafe withUnsafeBytes { bytes in
            guard let base = bytes.baseAddress,
                let found = unsafe memchr(base + start, CInt(byte), bytes.count - start)
            else { return nil }
            return unsafe UnsafeRawPointer(found) - base
        }
    }

    /// The number of bytes without a carriage return at the end.
    fileprivate var trimmedCount: Int {
        byteCount > 0 && self[byteCount - 1] == .carriageReturn ? byteCount - 1 : byteCount
    }

    fileprivate var hasByteOrderMark: Bool {
        byteCount >= 3 && self[0] == 0xEF && self[1] == 0xBB && self[2] == 0xBF
    }
}
