import ExampleTestSupport
import Reactor
import ReactorTesting
import Testing

@testable import importer

@Suite(.runLoop) struct CSVParserTests {
    /// The fields of a record, or its fault.
    fileprivate struct Row: Equatable, Sendable {
        let line: Int
        let fields: [String]
        var fault: CSVRecord.Fault?

        init(_ line: Int, _ fields: String...) { (self.line, self.fields) = (line, fields) }

        init(_ line: Int, _ fields: [String]) { (self.line, self.fields) = (line, fields) }

        init(_ line: Int, _ fault: CSVRecord.Fault) { (self.line, fields, self.fault) = (line, [], fault) }

        init(_ record: CSVRecord) {
            line = record.line
            fault = record.fault
            fields = record.fault == nil ? (0..<record.count).map { record[$0] } : []
        }
    }

    /// Parses text that arrives in chunks of at most `size` bytes.
    private static func rows(
        of text: some Sequence<UInt8>, lineLimit: Int = .max, chunks size: () -> Int = { .max }
    ) throws -> [Row] {
        var (rest, framer, parser) = (Array(text)[...], LineFramer.forCSV(lineLimit), CSVParser())
        var rows: [Row] = []
        func take(_ line: RawSpan, _ place: LineFramer.Line) -> LineFramer.Demand {
            parser.push(line, number: place.number, isWhole: place.ending != .truncated)
            while let record = parser.next() { rows.append(Row(record)) }
            return .more
        }
        while !rest.isEmpty {
            let chunk = Array(rest.prefix(size()))
            rest = rest.dropFirst(chunk.count)
            try framer.push(chunk.span.bytes, take)
        }
        try framer.finish(take)
        parser.end()
        while let record = parser.next() { rows.append(Row(record)) }
        return rows
    }

    // MARK: Fields

    @Test(arguments: [
        ("a,b,c", Row(1, "a", "b", "c")), (",", Row(1, "", "")), ("a,", Row(1, "a", "")),
        ("\"\"", Row(1, "")),
        ("\"a,b\",c", Row(1, "a,b", "c")), ("\"a \"\"b\"\"\",c", Row(1, "a \"b\"", "c")),
        ("5\" pipe,\"x\"", Row(1, "5\" pipe", "x")), ("\"a\nb\",c", Row(1, "a\nb", "c")),
        ("\"a\r\nb\"", Row(1, "a\r\nb")), ("\" a \", b ", Row(1, " a ", " b ")), ("é,日本", Row(1, "é", "日本")),
    ])
    fileprivate func `fields may be quoted and have commas, quotes and line breaks`(text: String, row: Row)
        throws
    {
        for end in ["", "\n", "\r\n", "\n\n", "\r\n\r\n"] {
            #expect(try Self.rows(of: (text + end).utf8) == [row], "\(text.debugDescription)")
        }
    }

    @Test(
        arguments: [
            // A byte-order mark is skipped at the beginning only.
            ("\u{FEFF}\"a\",b\n\u{FEFF}c\n", .max, [Row(1, "a", "b"), Row(2, "\u{FEFF}c")]),
            // A record has the number of its first line.
            ("a\n\n\"b\n\nc\"\nd\n", .max, [Row(1, "a"), Row(3, "b\n\nc"), Row(6, "d")]),
            // Text after a closing quote, a null character, and a line that is too long make one record faulty.
            (
                "\"a\"b,c\nd\n\"e\" ,\ng", .max,
                [Row(1, .textAfterQuote), Row(2, "d"), Row(3, .textAfterQuote), Row(4, "g")]
            ),
            ("a\0b\n\"\0\",c\nd", .max, [Row(1, .nullCharacter), Row(2, .nullCharacter), Row(3, "d")]),
            (
                "abc\nabcd\n\"a\nbcde\"\nb", 3,
                [
                    Row(1, "abc"), Row(2, .lineTooLong), Row(3, .unclosedQuote), Row(4, .lineTooLong),
                    Row(5, "b"),
                ]
            ),
            // A quote that is not closed before other text, the end, or a line that is too long loses one line.
            ("\"a\",\"b\n\"c\",\"d\"\n", .max, [Row(1, .unclosedQuote), Row(2, "c", "d")]),
            (
                "a\n\"b\nc,d\n\ne", .max,
                [Row(1, "a"), Row(2, .unclosedQuote), Row(3, "c", "d"), Row(5, "e")]
            ),
            (
                "\"a\nb\n\nc\nlonger\nd", 3,
                [Row(1, .unclosedQuote), Row(2, "b"), Row(4, "c"), Row(5, .lineTooLong), Row(6, "d")]
            ),
            (
                "\",a\",\"\n\",a\",\"\nb", .max,
                [Row(1, .unclosedQuote), Row(2, .unclosedQuote), Row(3, "b")]
            ),
        ] as [(String, Int, [Row])])
    fileprivate func `a fault costs one record`(text: String, limit: Int, rows: [Row]) throws {
        #expect(try Self.rows(of: text.utf8, lineLimit: limit) == rows, "\(text.debugDescription)")
    }

    @Test func `a quote that is not closed within the limit loses one line`() throws {
        let count = CSVParser.limit / 10 + 100
        let text = "\"a\n" + String(repeating: "123456789\n", count: count)
        let rows = try Self.rows(of: text.utf8)
        #expect(rows.first == Row(1, .unclosedQuote))
        #expect(rows.dropFirst() == (0..<count).map { Row($0 + 2, "123456789") }[...])
    }

    @Test func `text that is not UTF-8 makes a record faulty, even if two fields together are`() throws {
        let text: [UInt8] = [0x61, 0xFF, 0x0A, 0xC3, 0x2C, 0xA9, 0x0A, 0xC3, 0xA9]
        #expect(try Self.rows(of: text) == [Row(1, .invalidText), Row(2, .invalidText), Row(3, "é")])
    }

    // MARK: Random files

    @Test(arguments: 1...UInt64(Depth.of(full: 20, quick: 4)))
    func `random records are read as they were written, however the bytes arrive`(seed: UInt64) throws {
        var generator = SeededGenerator(seed: seed)
        var (text, rows, line) = ("", [Row](), 1)
        for _ in 0..<200 {
            let fields = (0..<Int.random(in: 1...5, using: &generator)).map { _ in Self.field(&generator) }
            rows.append(Row(line, fields))
            let ending = Bool.random(using: &generator) ? "\n" : "\r\n"
            let record = fields.map { Self.written($0, &generator) }.joined(separator: ",") + ending
            text += record
            line += record.utf8.count { $0 == 0x0A }
        }
        #expect(try Self.rows(of: text.utf8) == rows)
        #expect(try Self.rows(of: text.utf8) { Int.random(in: 1...9, using: &generator) } == rows)
    }

    private static func field(_ generator: inout SeededGenerator) -> String {
        let parts = ["a", "b c", "é", ",", "\"", "\n", "\r\n", "\r", "日"]
        return (0..<Int.random(in: 0...4, using: &generator)).map { _ in
            parts.randomElement(using: &generator)!
        }
        .joined()
    }

    private static func written(_ field: String, _ generator: inout SeededGenerator) -> String {
        let mustQuote =
            field.isEmpty || field.unicodeScalars.contains { ",\"\r\n".unicodeScalars.contains($0) }
        guard mustQuote || Bool.random(using: &generator) else { return field }
        let doubled = field.unicodeScalars.map { $0 == "\"" ? "\"\"" : String($0) }.joined()
        return "\"\(doubled)\""
    }
}

extension LineFramer {
    fileprivate static func forCSV(_ limit: Int) -> LineFramer {
        LineFramer(terminator: .lineFeed, limit: limit, overflow: .truncate)
    }
}
