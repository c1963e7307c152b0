#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct LineFramerLimitTests {
    private func places(_ text: String, _ overflow: LineFramer.Overflow) -> [String] {
        let outcome = Framing(limit: 3, overflow: overflow).frame([Array(text.utf8)])
        return outcome.deliveries.map { "\($0.line.number) \($0.text) \($0.line.ending)" }
    }

    @Test(arguments: [LineFramer.Overflow.fail, .truncate, .split])
    func `a line exactly at the limit is whole`(overflow: LineFramer.Overflow) {
        let expected = ["1 abc terminated", "2 def terminated", "3 ghi unterminated"]
        #expect(places("abc\ndef\r\nghi", overflow) == expected)
    }

    @Test func `a line of one byte more fails after the lines before it`() throws {
        var framer = LineFramer(limit: 3)
        var kept: [String] = []
        let error = LineFramer.LineTooLong(number: 3, offset: 5, limit: 3)
        #expect("\(error)" == "line 3, at offset 5, has more than 3 bytes")
        let bytes = Array("ab\n\r\nabcd\nef\n".utf8)
        #expect(throws: error) {
            try unsafe framer.push(bytes.span.bytes) {
                kept.append(Delivery($0, $1).text)
                return .more
            }
        }
        #expect(kept == ["ab", ""])
        #expect(framer.lineCount == 2 && framer.byteCount == 5)
        #expect(throws: error) { try framer.push("x\n") }
        #expect(throws: error) { try framer.finish() }
    }

    @Test func `a line that is too long fails before its end has come`() {
        var framer = LineFramer(terminator: .lineFeed, limit: 3)
        #expect(throws: LineFramer.LineTooLong.self) { try framer.push("abcd") }
    }

    @Test func `a last line that is too long fails at the end`() throws {
        var framer = LineFramer(limit: 3)
        _ = try framer.push("a\nabc\r")
        #expect(throws: LineFramer.LineTooLong(number: 2, offset: 2, limit: 3)) { try framer.finish() }
        #expect(framer.byteCount == 2)
    }

    @Test func `a truncated line is delivered once and the next one whole`() {
        #expect(places("abcdefgh\nij", .truncate) == ["1 abc truncated", "2 ij unterminated"])
        #expect(places("abcd", .truncate) == ["1 abc truncated"])
    }

    @Test func `a split line comes in pieces, and the last one is not empty`() {
        let expected = ["1 abc continued", "1 def continued", "1 g terminated", "2 h unterminated"]
        #expect(places("abcdefg\nh", .split) == expected)
        #expect(places("abcdef\n", .split) == ["1 abc continued", "1 def terminated"])
        #expect(places("abcdef", .split) == ["1 abc continued", "1 def unterminated"])
    }

    @Test func `a terminator at the limit may arrive in two pushes`() throws {
        var framer = LineFramer(limit: 3)
        #expect(try framer.push("abc\r").deliveries.isEmpty)
        #expect(try framer.push("\n").deliveries.map(\.text) == ["abc"])
        _ = try framer.push("abc\r")
        #expect(throws: LineFramer.LineTooLong(number: 2, offset: 5, limit: 3)) { try framer.push("x") }
    }

    @Test func `the longest line is reported whatever the limit`() {
        for overflow in [LineFramer.Overflow.truncate, .split] {
            let pieces = ["abcd", "efg\r\nhi\n"].map { Array($0.utf8) }
            #expect(Framing(limit: 3, overflow: overflow).frame(pieces).longestLine == 7)
        }
    }

    @Test(arguments: [LineFramer.Overflow.truncate, .split])
    func `a stream without terminators takes no more memory than the limit`(
        overflow: LineFramer.Overflow
    ) throws {
        let limit = 100_000
        var framer = LineFramer(limit: limit, overflow: overflow)
        let block = [UInt8](repeating: 120, count: 7000)
        for _ in 0..<1000 {
            try unsafe framer.push(block.span.bytes) { _, _ in .more }
            #expect(framer.carry.capacity <= limit + 4096)  // what the allocator rounds up
        }
    }

    @Test func `the memory of a giant line is freed`() throws {
        var framer = LineFramer(limit: .max)
        _ = try framer.push(String(repeating: "x", count: 1 << 20))
        #expect(framer.carry.capacity >= 1 << 20)
        #expect(try framer.push("\nx").deliveries.first?.bytes.count == 1 << 20)
        #expect(framer.carry.capacity <= LineFramer.keptCapacity)
    }

    @Test func `lines that straddle pushes reuse the same memory`() throws {
        var framer = LineFramer()
        _ = try framer.push(String(repeating: "x", count: 1000))
        let capacity = framer.carry.capacity
        for _ in 0..<10 {
            _ = try framer.push("\n" + String(repeating: "x", count: 900))
            #expect(framer.carry.capacity == capacity)
        }
    }
}

#endif
