import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct LineFramerTests {
    private func lines(_ text: String, _ terminator: LineTerminator) -> [String] {
        Framing(terminator: terminator).frame([Array(text.utf8)]).deliveries.map(\.text)
    }

    @Test func `a line feed ends a line and a carriage return before it is part of the line`() {
        #expect(lines("a\r\nb\n\nc", .lineFeed) == ["a\r", "b", "", "c"])
    }

    @Test func `a newline is a line feed with or without one carriage return`() {
        #expect(lines("a\r\nb\n\r\nc\rd\r\r\ne\r", .newline) == ["a", "b", "", "c\rd\r", "e\r"])
    }

    @Test func `only CR LF ends a line of an Internet protocol`() {
        #expect(lines("a\nb\rc\r\r\n\r\nd\r", .carriageReturnLineFeed) == ["a\nb\rc\r", "", "d\r"])
    }

    @Test(arguments: [
        ("aaab|", "aab", ["a", "|"]), ("ababab", "abab", ["", "ab"]), ("aaaa", "aa", ["", ""]),
        ("aaaaa", "aa", ["", "", "a"]), ("abcabd", "abd", ["abc"]), ("x;y;", ";", ["x", "y"]),
    ])
    func `the first occurrence of the terminator ends the line`(
        text: String, terminator: String, expected: [String]
    ) {
        #expect(lines(text, .bytes(Array(terminator.utf8))) == expected)
    }

    @Test func `a delivery has its place and its ending`() throws {
        var framer = LineFramer()
        let places = try framer.push("ab\r\n\nc").deliveries.map(\.line)
        #expect(
            places == [
                .init(number: 1, offset: 0, terminatorLength: 2, ending: .terminated),
                .init(number: 2, offset: 4, terminatorLength: 1, ending: .terminated),
            ])
        let last = LinePlace(number: 3, offset: 5, terminatorLength: 0, ending: .unterminated)
        #expect(try framer.finish() == [Delivery(bytes: Array("c".utf8), line: last)])
    }

    @Test(arguments: [[], [[]], [[], []]] as [[[UInt8]]])
    func `no bytes are no lines`(pieces: [[UInt8]]) {
        #expect(Framing().frame(pieces) == Outcome())
    }

    @Test func `only terminators are empty lines and no last one`() {
        #expect(lines("\n\n\r\n", .newline) == ["", "", ""])
    }

    @Test func `zero bytes are bytes like others`() {
        let outcome = Framing(terminator: .bytes([0])).frame([[1, 0, 0, 10, 0]])
        #expect(outcome.deliveries.map(\.bytes) == [[1], [], [10]])
        #expect(Framing().frame([[0, 10, 0]]).deliveries.map(\.bytes) == [[0], [0]])
    }

    @Test func `a line within one push is delivered without copying`() throws {
        let bytes = Array("one\ntwo\nthree".utf8)
        var framer = LineFramer()
        var isInPlace: [Bool] = []
        let whole = unsafe bytes.span.bytes
        try framer.push(whole) { line, place in
            isInPlace.append(whole.byteOffsets(of: line) == place.offset..<place.offset + line.byteCount)
            return .more
        }
        #expect(isInPlace == [true, true])
    }

    @Test func `a push may have more lines than one batch of the finder`() {
        let count = 3000
        let input = (0..<count).flatMap { Array("\($0)\n".utf8) }
        let outcome = Framing().frame([input])
        #expect(outcome.deliveries.map(\.text) == (0..<count).map(String.init))
        #expect(outcome == Framing().expect(input))
    }

    @Test func `the counts are right after each push`() throws {
        var framer = LineFramer()
        _ = try framer.push("four\nse")
        #expect(framer.lineCount == 1 && framer.byteCount == 7 && framer.longestLine == 4)
        _ = try framer.push("venth\r")
        #expect(framer.lineCount == 1 && framer.byteCount == 13 && framer.longestLine == 4)
        _ = try framer.push("\nx\n")
        #expect(framer.lineCount == 3 && framer.byteCount == 16 && framer.longestLine == 7)
        _ = try framer.push("the last")
        #expect(try framer.finish().map(\.text) == ["the last"])
        #expect(framer.lineCount == 4 && framer.byteCount == 24 && framer.longestLine == 8)
        #expect(try framer.finish().isEmpty)
    }

    @Test func `a framer without a limit or a terminator traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = LineFramer(limit: 0)
        }
        #expect(result.message.contains("LineFramer.limit must be positive, not 0"))
        let other = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = LineFramer(terminator: .bytes([]))
        }
        #expect(other.message.contains("LineTerminator.bytes needs at least one byte"))
    }
}
