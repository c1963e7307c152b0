import Glibc

/// Assembles the records of comma-separated values (RFC 4180) from a file's lines. A pure value: push a line,
/// then take the records that it completes.
///
/// A quoted field may have commas, doubled quotes and line breaks. A quote inside an unquoted field is an
/// ordinary character. A carriage return at the end of a record, empty lines and a byte-order mark are
/// skipped.
///
/// A record that is not well-formed has a ``CSVRecord/Fault``, and the next line begins a new record. If a
/// quote is not closed within ``limit`` bytes, or before the end of the file, only the line that opened it is
/// lost: the lines after it are parsed again.
struct CSVParser: Sendable {
    /// A record with more bytes in several lines is taken for an unclosed quote: it would otherwise swallow
    /// the rest of the file, and the memory.
    static let limit = 65_536

    private enum Place { case fieldStart, unquoted, quoted, afterQuote }

    private var record = CSVRecord()
    private var place = Place.fieldStart
    /// Whether ``record`` is complete and has not been taken.
    private var isComplete = false
    private var isAtEnd = false
    /// The lines so far of a record that continues on the next line.
    private var openLines: [[UInt8]] = []
    private var openByteCount = 0
    /// The lines after an unclosed quote, which are parsed again, and the number of the first.
    private var repeatedLines: ArraySlice<[UInt8]> = []
    private var repeatedNumber = 0

    /// Parses a file's next line. Requires that ``next()`` has returned nil.
    ///
    /// - Parameters:
    ///   - line: The line without its line feed.
    ///   - number: The line's number, from one.
    ///   - isWhole: False if the line's end has been cut off. Its record is then faulty.
    mutating func push(_ line: RawSpan, number: Int, isWhole: Bool = true) {
        let markLength = number == 1 && line.hasByteOrderMark ? 3 : 0
        take(line.extracting(droppingFirst: markLength), number: number, isWhole: isWhole)
    }

    /// Ends the file: ``next()`` also returns the records of a field that has no end.
    mutating func end() { isAtEnd = true }

    /// Returns the next record that is complete; nil if another line is needed.
    mutating func next() -> CSVRecord? {
        while !isComplete {
            if let line = repeatedLines.popFirst() {
                unsafe take(line.span.bytes, number: repeatedNumber, isWhole: true)
                repeatedNumber += 1
            } else if openByteCount > Self.limit || isAtEnd && !openLines.isEmpty {
                abandonRecord()
            } else {
                return nil
            }
        }
        isComplete = false
        return record
    }

    private mutating func take(_ line: RawSpan, number: Int, isWhole: Bool) {
        if openLines.isEmpty {
            if line.trimmedCount == 0 { return }
            record.begin(atLine: number)
        }
        if isWhole { parse(line) } else { refuse(.lineTooLong) }
        if place == .quoted { keepOpen(line) } else { complete() }
    }

    private mutating func keepOpen(_ line: RawSpan) {
        record.append(UInt8(ascii: "\n"))
        openLines.append(unsafe line.withUnsafeBytes { unsafe Array($0) })
        openByteCount += line.byteCount + 1
    }

    private mutating func complete() {
        openLines = []
        openByteCount = 0
        record.checkText()
        isComplete = true
    }

    /// Refuses the line that has opened a quote, and repeats the lines after it as records of their own.
    private mutating func abandonRecord() {
        repeatedLines = openLines.dropFirst()
        repeatedNumber = record.line + 1
        refuse(.unclosedQuote)
        complete()
    }

    private mutating func refuse(_ fault: CSVRecord.Fault) {
        record.fault = fault
        place = .fieldStart
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
        default: refuse(.textAfterQuote)
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

    fileprivate func firstOffset(of byte: UInt8, from start: Int) -> Int? {
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
