import Reactor
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
                let wrong = (0..<1 << (input.count - 1)).first { framing.frame(input.cut($0)) != expected }
                #expect(wrong == nil, "\(framing), \(input) in \(input.cut(wrong ?? 0))")
            }
        }
    }

    @Test(arguments: terminators)
    func `random cuts of random streams`(terminator: LineTerminator) {
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<400 {
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
}
