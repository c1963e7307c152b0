import ExampleSupport

/// A row of GTFS's `stops.txt`: a place where vehicles stop, or a part of one.
///
/// https://gtfs.org/documentation/schedule/reference/#stopstxt
struct Stop: Sendable, Equatable {
    var identifier: String
    var code: String?
    var name: String?
    var latitude: Double?
    var longitude: Double?
    var locationType: Int?
    var parentStation: String?
}

/// Why a row is skipped.
enum BadRow: Error, Equatable, CustomStringConvertible {
    case malformed(CSVRecord.Fault)
    case fieldCount(Int, expected: Int)
    case noIdentifier
    case outOfRange(column: String, value: String)

    var description: String {
        switch self {
        case .malformed(.unclosedQuote): "a quoted field has no end"
        case .malformed(.textAfterQuote): "there is text between a closing quote and the next comma"
        case .malformed(.lineTooLong): "the line is longer than \(StopImport.lineLimit) bytes"
        case .malformed(.invalidText): "the text is not UTF-8"
        case .malformed(.nullCharacter): "a field has a null character"
        case .fieldCount(let count, let expected): "\(count.counting("field")) instead of \(expected)"
        case .noIdentifier: "stop_id is empty"
        case .outOfRange(let column, let value): "\(column) is not in its range: \(Self.excerpt(of: value))"
        }
    }

    /// The beginning of a value, without characters that control a terminal.
    private static func excerpt(of value: String) -> String {
        let text = value.count > longestExcerpt ? value.prefix(longestExcerpt) + "…" : value[...]
        return String(String.UnicodeScalarView(text.unicodeScalars.map { $0.isPrintable ? $0 : "\u{FFFD}" }))
    }

    private static let longestExcerpt = 40
}

/// The header names a file's columns, in any order. Columns that the importer does not know are ignored.
struct StopColumns: Sendable {
    private let count: Int
    private let identifier: Int
    private let code: Int?
    private let name: Int?
    private let latitude: Int?
    private let longitude: Int?
    private let locationType: Int?
    private let parentStation: Int?

    /// - Throws: ``InvalidHeader``.
    init(_ header: CSVRecord) throws {
        guard header.fault == nil else { throw InvalidHeader() }
        let indices = Dictionary((0..<header.count).map { (header[$0], $0) }) { first, _ in first }
        guard let identifier = indices["stop_id"] else { throw InvalidHeader() }
        count = header.count
        self.identifier = identifier
        code = indices["stop_code"]
        name = indices["stop_name"]
        latitude = indices["stop_lat"]
        longitude = indices["stop_lon"]
        locationType = indices["location_type"]
        parentStation = indices["parent_station"]
    }

    /// Makes a stop of a row. Empty fields, and those of missing columns, are nil.
    func stop(_ row: CSVRecord) throws(BadRow) -> Stop {
        if let fault = row.fault { throw .malformed(fault) }
        guard row.count == count else { throw .fieldCount(row.count, expected: count) }
        guard !row[identifier].isEmpty else { throw .noIdentifier }
        return Stop(
            identifier: row[identifier], code: text(row, code), name: text(row, name),
            latitude: try number(row, latitude, "stop_lat", -90...90),
            longitude: try number(row, longitude, "stop_lon", -180...180),
            locationType: try number(row, locationType, "location_type", 0...4),
            parentStation: text(row, parentStation))
    }

    private static let numerals = Set("0123456789+-.eE".utf8)

    private func text(_ row: CSVRecord, _ index: Int?) -> String? {
        guard let index, case let text = row[index], !text.isEmpty else { return nil }
        return text
    }

    private func number<Number: LosslessStringConvertible & Comparable>(
        _ row: CSVRecord, _ index: Int?, _ column: String, _ range: ClosedRange<Number>
    ) throws(BadRow) -> Number? {
        guard let text = text(row, index) else { return nil }
        // Swift also reads hexadecimal digits.
        guard text.utf8.allSatisfy(Self.numerals.contains), let number = Number(text), range.contains(number)
        else {
            throw .outOfRange(column: column, value: text)
        }
        return number
    }
}

struct InvalidHeader: Error, CustomStringConvertible {
    var description: String { "The first line does not name a column stop_id" }
}
