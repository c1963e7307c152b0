import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct LineFramerStopTests {
    private struct Refusal: Error {}

    @Test func `a body that returns enough leaves the rest to a later push`() throws {
        var framer = LineFramer()
        let text = "one\ntwo\nthree\nfo"
        let (taken, first) = try framer.push(text) { $0.text == "two" }
        #expect(taken == 8)
        #expect(first.map(\.text) == ["one", "two"])
        #expect(framer.lineCount == 2 && framer.byteCount == 8)
        let rest = try framer.push(text.dropFirst(taken))
        #expect(rest.taken == 8)
        #expect(rest.deliveries.map(\.text) == ["three"])
        #expect(rest.deliveries.map(\.line.offset) == [8])
        #expect(try framer.finish().map(\.text) == ["fo"])
    }

    @Test func `an error of the body is rethrown and its line counts as delivered`() throws {
        var framer = LineFramer()
        _ = try framer.push("o")
        let text = "ne\ntwo\nthree\n"
        var kept: [String] = []
        #expect(throws: Refusal.self) {
            try unsafe framer.push(Array(text.utf8).span.bytes) { bytes, line in
                kept.append(Delivery(bytes, line).text)
                if line.number == 2 { throw Refusal() }
                return .more
            }
        }
        #expect(kept == ["one", "two"])
        #expect(framer.lineCount == 2 && framer.byteCount == 8)
        #expect(try framer.push("three\n").deliveries.map(\.text) == ["three"])
    }

    @Test func `an error at a carried line leaves nothing of it behind`() throws {
        var framer = LineFramer()
        _ = try framer.push("on")
        let rest = Array("e\nnext\n".utf8)
        #expect(throws: Refusal.self) { try unsafe framer.push(rest.span.bytes) { _, _ in throw Refusal() } }
        #expect(framer.byteCount == 4)
        #expect(try framer.push("next\n").deliveries.map(\.text) == ["next"])
    }

    @Test func `an error at the last line ends the stream all the same`() throws {
        var framer = LineFramer()
        _ = try framer.push("last")
        #expect(throws: Refusal.self) { try framer.finish { _, _ in throw Refusal() } }
        #expect(framer.lineCount == 1)
        #expect(try framer.finish().isEmpty)
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
        var framer = framing.framer
        var outcome = Outcome()
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
        outcome.lineCount = framer.lineCount
        outcome.byteCount = framer.byteCount
        outcome.longestLine = framer.longestLine
        return outcome
    }
}
