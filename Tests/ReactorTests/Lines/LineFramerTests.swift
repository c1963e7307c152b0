import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// However the bytes arrive, the lines, their places, the failure and the counts are those of the model.
@Suite(.runLoop) struct LineFramerCutTests {
    private static let terminators: [LineTerminator] = [
        .lineFeed, .newline, .carriageReturnLineFeed, .bytes([97]), .bytes([97, 97]), .bytes([97, 97, 98]),
        .bytes([97, 98, 97]), .bytes([97, 13, 10, 97]),
    ]
    private static let overflows: [LineFramer.Overflow] = [.fail, .truncate, .split]

    private static let inputs = [
        "ab\r\ncd\n\r\ne", "\r\r\n\n\r\nab\r\n", "a\r\naa\r\n\r\na\r", "aaabaabaaab", "abababaabab",
        "aaaaaaaaaa", "abcdef\r\ngh", "\n\n\n", "abcdefghijk",
    ]

    @Test(arguments: terminators, [1, 3, 100])
    func `lines do not depend on how a short stream is split`(terminator: LineTerminator, limit: Int) {
        for overflow in limit < 100 ? Self.overflows : [.fail] {
            let framing = Framing(terminator: terminator, limit: limit, overflow: overflow)
            for input in Self.inputs.map({ Array($0.utf8) }) {
                let expected = framing.expect(input)
                // A tenth of all ways: 11 has no factor in common with their number.
                let masks = stride(from: 0, to: 1 << (input.count - 1), by: Depth.of(full: 1, quick: 11))
                let wrong = masks.first { framing.frame(input.cut($0)) != expected }
                #expect(wrong == nil, "\(framing), \(input) in \(input.cut(wrong ?? 0))")
            }
        }
    }

    @Test(arguments: terminators)
    func `lines do not depend on how a random stream is split`(terminator: LineTerminator) {
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<40 {
            let framing = Framing(
                terminator: terminator, limit: [1, 3, 17, 64, 200, 5000].randomElement(using: &generator)!,
                overflow: Self.overflows.randomElement(using: &generator)!)
            let input = randomInput(&generator)
            let pieces = randomCut(input, &generator)
            #expect(framing.frame(pieces) == framing.expect(input), "\(framing), \(pieces.map(\.count))")
        }
    }

    /// Random bytes, more or fewer of them from a terminator.
    private func randomInput(_ generator: inout SeededGenerator) -> [UInt8] {
        let alphabet: [UInt8] = [97, 97, 98, 13, 10, 13, 10]
        let rarity = [2, 10, 100].randomElement(using: &generator)!
        return (0..<Int.random(in: 0...900, using: &generator)).map { _ in
            guard Int.random(in: 0..<rarity, using: &generator) == 0 else { return 120 }
            return alphabet.randomElement(using: &generator)!
        }
    }

    private func randomCut(_ input: [UInt8], _ generator: inout SeededGenerator) -> [[UInt8]] {
        let greatest = [1, 5, 70, 400].randomElement(using: &generator)!
        var rest = input[...]
        var pieces: [[UInt8]] = []
        while !rest.isEmpty {
            let piece = rest.prefix(Int.random(in: 0...greatest, using: &generator))
            pieces.append(Array(piece))
            rest = rest.dropFirst(piece.count)
        }
        return pieces
    }

    @Test(arguments: [LineTerminator.newline, .carriageReturnLineFeed, .bytes([97, 97, 98])])
    func `a stop at every delivery changes no delivery`(terminator: LineTerminator) throws {
        let input = Array("ab\r\ncdaab\r\n\naaabefghijk\r\n\r\nlm\n".utf8)
        for overflow in [LineFramer.Overflow.truncate, .split] {
            let framing = Framing(terminator: terminator, limit: 3, overflow: overflow)
            let expected = framing.expect(input)
            for size in 1...input.count {
                #expect(try stopping(framing, input, size) == expected, "\(framing) in pieces of \(size)")
            }
        }
    }

    /// Stops at each delivery, and pushes the rest again.
    private func stopping(_ framing: Framing, _ input: [UInt8], _ size: Int) throws -> Outcome {
        var (framer, outcome) = (framing.framer, Outcome())
        for start in stride(from: 0, to: input.count, by: size) {
            var rest = Array(input[start..<min(start + size, input.count)])
            var wasStopped = true
            while wasStopped {
                wasStopped = false
                let taken = try unsafe framer.push(rest.span.bytes) { bytes, line in
                    wasStopped = true
                    _ = outcome.keep(bytes, line)
                    return .enough
                }
                rest.removeFirst(taken)
            }
        }
        try framer.finish { outcome.keep($0, $1) }
        outcome.count(framer)
        return outcome
    }
}

@Suite(.runLoop) struct LineFramerTests {
    @Test(
        arguments: [
            (.lineFeed, "a\r\nb\n\nc", ["a\r", "b", "", "c"]),
            (.newline, "a\r\nb\n\r\nc\rd\r\r\ne\r", ["a", "b", "", "c\rd\r", "e\r"]),
            (.carriageReturnLineFeed, "a\nb\rc\r\r\n\r\nd\r", ["a\nb\rc\r", "", "d\r"]),
            (.newline, "", []), (.newline, "\n\n\r\n", ["", "", ""]), (.newline, "\0\n\0", ["\0", "\0"]),
            (.bytes([0]), "a\0\0\n\0", ["a", "", "\n"]), (.bytes(Array("abd".utf8)), "abcabd", ["abc"]),
            (.bytes(Array("aab".utf8)), "aaab|", ["a", "|"]),
            (.bytes(Array("aa".utf8)), "aaaaa", ["", "", "a"]),
            (.bytes(Array("abab".utf8)), "ababab", ["", "ab"]),
        ] as [(LineTerminator, String, [String])])
    func `the terminator ends a line`(terminator: LineTerminator, text: String, lines: [String]) {
        let outcome = Framing(terminator: terminator).frame([[], Array(text.utf8)])
        #expect(outcome.deliveries.map(\.text) == lines && outcome.lineCount == lines.count)
    }

    @Test func `deliveries have their places, and the counts are right after each push`() throws {
        var framer = LineFramer()
        let first = try framer.push("ab\r\n\nsev").deliveries.map(\.line)
        #expect(
            first == [
                .init(number: 1, offset: 0, terminatorLength: 2, ending: .terminated),
                .init(number: 2, offset: 4, terminatorLength: 1, ending: .terminated),
            ])
        #expect(framer.lineCount == 2 && framer.byteCount == 8 && framer.longestLine == 2)
        _ = try framer.push("enth\r")
        #expect(framer.lineCount == 2 && framer.byteCount == 13)
        _ = try framer.push("\nlast")
        #expect(framer.lineCount == 3 && framer.byteCount == 18 && framer.longestLine == 7)
        let last = LinePlace(number: 4, offset: 14, terminatorLength: 0, ending: .unterminated)
        #expect(try framer.finish() == [Delivery(bytes: Array("last".utf8), line: last)])
        #expect(framer.lineCount == 4 && framer.byteCount == 18)
        #expect(try framer.finish().isEmpty)
    }

    @Test func `a line within one push is delivered without copying`() throws {
        let bytes = Array("one\ntwo\nthree".utf8)
        var (framer, isInPlace) = (LineFramer(), [Bool]())
        let whole = unsafe bytes.span.bytes
        try framer.push(whole) { line, place in
            isInPlace.append(whole.byteOffsets(of: line) == place.offset..<place.offset + line.byteCount)
            return .more
        }
        #expect(isInPlace == [true, true])
    }

    @Test(arguments: [true, false])
    func `a framer without a limit or a terminator traps`(hasLimit: Bool) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [hasLimit] in
            _ = hasLimit ? LineFramer(terminator: .bytes([])) : LineFramer(limit: 0)
        }
        #expect(result.message.contains(hasLimit ? "LineTerminator.bytes" : "LineFramer.limit"))
    }
}

@Suite(.runLoop) struct LineFramerStopTests {
    private struct Refusal: Error {}

    @Test func `a body that returns enough leaves the rest to a later push`() throws {
        var framer = LineFramer()
        let text = "one\ntwo\nthree\nfo"
        let (taken, first) = try framer.push(text) { $0.text == "two" }
        #expect(taken == 8 && first.map(\.text) == ["one", "two"])
        #expect(framer.lineCount == 2 && framer.byteCount == 8)
        let rest = try framer.push(text.dropFirst(taken))
        #expect(rest.taken == 8 && rest.deliveries.map(\.text) == ["three"])
        #expect(rest.deliveries.map(\.line.offset) == [8])
        #expect(try framer.finish().map(\.text) == ["fo"])
    }

    @Test(arguments: ["carried", "whole", "last"])
    func `an error of the body is rethrown, and its line counts as delivered`(place: String) throws {
        var (framer, kept) = (LineFramer(), [String]())
        let (head, tail, lineCount) =
            switch place {
            case "carried": ("on", "e\nnext\n", 1)
            case "whole": ("o", "ne\ntwo\nnext\n", 2)
            default: ("two\n", "three", 2)
            }
        _ = try framer.push(head)
        #expect(throws: Refusal.self) {
            func refuse(_ bytes: RawSpan, _ line: LineFramer.Line) throws -> LineFramer.Demand {
                kept.append(Delivery(bytes, line).text)
                if line.number == lineCount { throw Refusal() }
                return .more
            }
            try unsafe framer.push(Array(tail.utf8).span.bytes, refuse)
            try framer.finish(refuse)
        }
        #expect(kept.last == ["carried": "one", "whole": "two", "last": "three"][place])
        #expect(framer.lineCount == lineCount)
        #expect(try framer.finish().isEmpty)
        if place != "last" { #expect(try framer.push("next\n").deliveries.map(\.text) == ["next"]) }
    }

    @Test func `the pieces of a last line can be delivered one by one`() throws {
        var framer = LineFramer(terminator: .bytes(Array("endend".utf8)), limit: 2, overflow: .split)
        _ = try framer.push("abcdefg")
        var kept: [String] = []
        while framer.lineCount == 0 {
            try framer.finish {
                kept.append(Delivery($0, $1).text)
                return .enough
            }
        }
        #expect(kept == ["ab", "cd", "ef", "g"])
    }
}

#if DEBUG

@testable import Reactor

@Suite(.runLoop) struct LineFramerLimitTests {
    @Test func `a line of one byte more fails as soon as it is too long, and for the rest of the stream`()
        throws
    {
        var (framer, kept) = (LineFramer(limit: 3), [String]())
        let error = LineFramer.LineTooLong(number: 3, offset: 5, limit: 3)
        let bytes = Array("ab\n\r\nabcde".utf8)
        #expect(throws: error) {
            try unsafe framer.push(bytes.span.bytes) {
                kept.append(Delivery($0, $1).text)
                return .more
            }
        }
        #expect(kept == ["ab", ""] && framer.lineCount == 2 && framer.byteCount == 5)
        #expect(throws: error) { try framer.push("x\n") }
        #expect(throws: error) { try framer.finish() }
    }

    @Test func `a framer keeps no more memory than its limit, and frees that of a giant line`() throws {
        for overflow in [LineFramer.Overflow.truncate, .split] {
            var framer = LineFramer(limit: 100_000, overflow: overflow)
            for _ in 0..<100 {
                _ = try framer.push(String(repeating: "x", count: 7000))
                #expect(framer.carry.capacity <= 100_000 + 4096)  // what the allocator rounds up
            }
        }
        var framer = LineFramer(limit: .max)
        _ = try framer.push(String(repeating: "x", count: 1 << 20))
        #expect(try framer.push("\nx").deliveries.first?.bytes.count == 1 << 20)
        #expect(framer.carry.capacity <= LineFramer.keptCapacity)
    }
}

#endif
