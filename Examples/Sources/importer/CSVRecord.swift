/// A record of a CSV file: its fields without quotes, or what is wrong with it.
struct CSVRecord: Sendable {
    enum Fault: Error {
        case unclosedQuote
        case textAfterQuote
        case lineTooLong
        case invalidText
        case nullCharacter
    }

    /// The number of the line on which the record begins, from one.
    private(set) var line = 0
    /// If there is one, the fields are incomplete.
    var fault: Fault?

    /// The fields, each with a comma after it, so that a character cannot reach from one field into the next.
    private var bytes: [UInt8] = []
    /// The offsets of these commas.
    private var ends: [Int] = []

    /// The number of fields.
    var count: Int { ends.count }

    /// The field at `index`. Requires that the record has no fault.
    subscript(index: Int) -> String {
        let start = index == 0 ? 0 : ends[index - 1] + 1
        let field = bytes.span.extracting(start..<ends[index])
        // `checkText()` has validated it.
        return unsafe String(copying: UTF8Span(unchecked: field))
    }

    // MARK: For the parser

    /// Begins a new record, and reuses the memory of the last.
    mutating func begin(atLine line: Int) {
        self.line = line
        fault = nil
        bytes.removeAll(keepingCapacity: true)
        ends.removeAll(keepingCapacity: true)
    }

    mutating func append(_ part: RawSpan) {
        unsafe part.withUnsafeBytes { unsafe bytes.append(contentsOf: $0) }
    }

    mutating func append(_ byte: UInt8) { bytes.append(byte) }

    mutating func endField() {
        ends.append(bytes.count)
        bytes.append(UInt8(ascii: ","))
    }

    /// Makes the record faulty unless its fields are UTF-8 without null characters, at which C's functions, and
    /// so SQLite's, end a text.
    mutating func checkText() {
        guard fault == nil else { return }
        if (try? UTF8Span(validating: bytes.span)) == nil {
            fault = .invalidText
        } else if unsafe bytes.span.bytes.firstOffset(of: 0, from: 0) != nil {
            fault = .nullCharacter
        }
    }
}
