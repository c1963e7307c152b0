#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct LineTextTests {
    private func text(_ bytes: [UInt8], _ policy: TextPolicy = .repair, at offset: Int = 0) throws -> String {
        let line = LineFramer.Line(number: 7, offset: offset, terminatorLength: 1, ending: .terminated)
        return try unsafe line.text(bytes.span.bytes, policy)
    }

    @Test(arguments: ["", "plain", "café, naïve, 日本語, 🎏", String(repeating: "Ж and more, ", count: 40)])
    func `decoding returns the encoded text`(original: String) throws {
        #expect(try text(Array(original.utf8)) == original)
        #expect(try text(Array(original.utf8), .report) == original)
    }

    @Test func `invalid text is repaired as the standard library does`() throws {
        let bytes: [UInt8] = [97, 0xFF, 98, 0xE2, 0x82, 99, 0xF0, 0x9F, 0x8E]
        #expect(try text(bytes) == "a\u{FFFD}b\u{FFFD}c\u{FFFD}")
        #expect(try text(bytes) == String(decoding: bytes, as: UTF8.self))
    }

    @Test func `invalid text is reported with its offset in the stream`() throws {
        #expect(throws: InvalidText(number: 7, offset: 103)) {
            try text([97, 0xC3, 0xA9, 0xE2, 0x82, 99], .report, at: 100)
        }
        #expect(throws: InvalidText(number: 7, offset: 40)) {
            try text([UInt8](repeating: 97, count: 40) + [0xC3], .report)
        }
    }

    @Test func `invalid text of a framed line is reported with its own offset`() throws {
        let bytes = Array("good\nb".utf8) + [0xFF, 10]
        var framer = LineFramer()
        var kept: [String] = []
        #expect(throws: InvalidText(number: 2, offset: 6)) {
            try unsafe framer.push(bytes.span.bytes) {
                kept.append(try $1.text($0, .report))
                return .more
            }
        }
        #expect(kept == ["good"])
    }

    @Test(
        arguments: [
            [0xC0, 0x80], [0xC1, 0xBF], [0xE0, 0x9F, 0xBF], [0xED, 0xA0, 0x80], [0xF0, 0x8F, 0xBF, 0xBF],
            [0xF4, 0x90, 0x80, 0x80], [0xF5, 0x80, 0x80, 0x80], [0x80], [0xC2], [0xE1, 0x80],
            [0xF1, 0x80, 0x80],
            [0xFE], [0xFF], [0xC2, 0x41], [0xC2, 0xC2, 0x80], [0xE1, 0x80, 0x41], [0xF1, 0x80, 0x80, 0x41],
        ] as [[UInt8]])
    func `ill-formed sequences are found wherever they are`(bad: [UInt8]) {
        for before in 0..<100 {
            for after in [0, 1, 2, 31, 64] {
                let x = UInt8(ascii: "x")
                let bytes = Array(repeating: x, count: before) + bad + Array(repeating: x, count: after)
                #expect(unsafe !bytes.span.bytes.isValidUTF8, "\(before) bytes before, \(after) after")
            }
        }
    }

    @Test(arguments: [
        "\u{80}", "\u{7FF}", "\u{800}", "\u{D7FF}", "\u{E000}", "\u{FFFF}", "\u{10000}", "\u{10FFFF}",
    ])
    func `well-formed characters are accepted wherever they are`(character: String) {
        for before in 0..<100 {
            for after in [0, 1, 2, 31, 64] {
                let padding = (String(repeating: "x", count: before), String(repeating: "x", count: after))
                let bytes = Array((padding.0 + character + padding.1).utf8)
                #expect(unsafe bytes.span.bytes.isValidUTF8, "\(before) bytes before, \(after) after")
            }
        }
    }

    @Test func `validation of random bytes agrees with the standard library`() {
        var generator = SeededGenerator(seed: 1)
        let units: [[UInt8]] = ["a", "é", "日", "🎏"].map { Array($0.utf8) }
        for round in 0..<20_000 {
            var bytes: [UInt8] = []
            for _ in 0..<Int.random(in: 0...60, using: &generator) {
                bytes += units.randomElement(using: &generator)!
            }
            if round % 2 == 0, let index = bytes.indices.randomElement(using: &generator) {
                bytes[index] = UInt8.random(in: 0...255, using: &generator)
            }
            let expected = String(validating: bytes, as: UTF8.self) != nil
            #expect(unsafe bytes.span.bytes.isValidUTF8 == expected, "\(bytes)")
            if let text = try? self.text(bytes, .report) {
                #expect(text.utf8Span.isKnownASCII == bytes.allSatisfy { $0 < 128 }, "\(bytes)")
            } else {
                #expect(!expected)
            }
        }
    }
}

#endif
