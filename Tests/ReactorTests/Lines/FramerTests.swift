import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// A way to frame messages, and what its framer is.
enum FramingKind: CaseIterable {
    case prefix8, prefix16, prefix32, varint, contentLength, newline, delimiter, custom

    func framer(limit: Int = Framer.defaultLimit) -> Framer {
        switch self {
        case .prefix8: .lengthPrefix(UInt8.self, limit: limit)
        case .prefix16: .lengthPrefix(UInt16.self, limit: limit)
        case .prefix32: .lengthPrefix(UInt32.self, limit: limit)
        case .varint: .varintPrefix(limit: limit)
        case .contentLength: .contentLength(limit: limit)
        case .newline: .delimiter(limit: limit)
        case .delimiter: .delimiter(.bytes([97, 97, 98]), limit: limit)
        case .custom: Framer(limit: limit, length: mqttLength)
        }
    }

    /// A message that the framer can frame, of about `size` bytes.
    func message(_ size: Int, _ generator: inout SeededGenerator) -> [UInt8] {
        let bytes = (0..<size).map { _ in UInt8.random(in: 14...96, using: &generator) }
        return self == .custom ? mqttPacket(bytes) : bytes
    }
}

/// The length of an MQTT packet: a type, and a varint of at most four bytes.
@Sendable private func mqttLength(_ beginning: Span<UInt8>) throws -> Int? {
    var (length, index) = (0, 1)
    while index < beginning.count {
        let byte = beginning[index]
        length |= Int(byte & 0x7F) << (7 * (index - 1))
        index += 1
        if byte < 0x80 { return index + length }
        if index > 4 { throw BadPacket() }
    }
    return nil
}

private struct BadPacket: Error {}

private func mqttPacket(_ body: [UInt8]) -> [UInt8] {
    [0x30]
        + (body.count < 128
            ? [UInt8(body.count)] : [UInt8(body.count & 0x7F) | 0x80, UInt8(body.count >> 7)]) + body
}

extension Framer {
    /// Pushes all pieces. Returns the messages, and what ended the cutting.
    mutating func cut(_ pieces: [[UInt8]]) -> (messages: [[UInt8]], error: String?) {
        var messages: [[UInt8]] = []
        do {
            for piece in pieces {
                try push(piece.span.bytes) { message in
                    messages.append(message.withUnsafeBytes { Array($0) })
                    return .more
                }
            }
            try finish()
        } catch {
            return (messages, "\(error)")
        }
        return (messages, nil)
    }
}

extension [UInt8] {
    /// The bytes in random pieces.
    func pieces(_ generator: inout SeededGenerator) -> [[UInt8]] {
        let greatest = [1, 3, 20, 400].randomElement(using: &generator)!
        var (rest, pieces) = (self[...], [[UInt8]]())
        while !rest.isEmpty {
            pieces.append(Array(rest.prefix(Int.random(in: 1...greatest, using: &generator))))
            rest = rest.dropFirst(pieces.last!.count)
        }
        return pieces
    }
}

@Suite(.runLoop) struct FramerTests {
    @Test(arguments: FramingKind.allCases)
    func `messages are cut as they were framed, however their bytes arrive`(kind: FramingKind) throws {
        for seed in 1...UInt64(Depth.of(full: 1000, quick: 40)) {
            var generator = SeededGenerator(seed: seed)
            let messages = (0..<Int.random(in: 0...20, using: &generator)).map { _ in
                kind.message([0, 1, 7, 130, 250].randomElement(using: &generator)!, &generator)
            }
            let stream = try messages.flatMap { try kind.framer().frame(for: $0) }
            let pieces = stream.pieces(&generator)
            var framer = kind.framer()
            let result = framer.cut(pieces)
            #expect(result.messages == messages && result.error == nil, "seed \(seed)")
            #expect(framer.byteCount == stream.count)
        }
    }

    /// Of random bytes, most are no messages.
    @Test(arguments: FramingKind.allCases)
    func `the messages and the error of random bytes do not depend on how they arrive`(kind: FramingKind) {
        for seed in 1...UInt64(Depth.of(full: 20_000, quick: 400)) {
            var generator = SeededGenerator(seed: seed)
            let parts: [[UInt8]] = [
                [0], [0, 0], [1], [3], [0x80], [0xFF], [10], [13, 10], [97], [97, 97, 98],
                Array("Content-Length: 3\r\n".utf8),
                Array("content-length:2".utf8), Array("X: y\r\n".utf8), Array("\r\n\r\nabc".utf8),
                [120, 120, 120],
            ]
            let stream = (0..<Int.random(in: 0...30, using: &generator)).flatMap { _ in
                parts.randomElement(using: &generator)!
            }
            var (whole, cut) = (kind.framer(limit: 40), kind.framer(limit: 40))
            let expected = whole.cut([stream])
            let result = cut.cut(stream.pieces(&generator))
            #expect(result == expected, "seed \(seed): \(stream)")
            #expect(whole.byteCount == cut.byteCount, "seed \(seed)")
        }
    }

    @Test func `a frame is what the protocol says`() throws {
        let message = Array("hello".utf8)
        #expect(try Framer.lengthPrefix(UInt8.self).frame(for: message) == [5] + message)
        #expect(try Framer.lengthPrefix(UInt16.self).frame(for: message) == [0, 5] + message)
        #expect(
            try Framer.lengthPrefix(UInt32.self).frame(for: message.span.bytes) == [0, 0, 0, 5] + message)
        #expect(
            try Framer.varintPrefix().frame(for: [UInt8](repeating: 1, count: 300)).prefix(3) == [0xAC, 2, 1])
        #expect(
            try Framer.contentLength().frame(for: message) == Array("Content-Length: 5\r\n\r\nhello".utf8))
        #expect(try Framer.delimiter(.carriageReturnLineFeed).frame(for: message) == message + [13, 10])
        #expect(try FramingKind.custom.framer().frame(for: [0x30, 2, 8, 9]) == [0x30, 2, 8, 9])
    }

    @Test(arguments: FramingKind.allCases)
    func `a message above the limit names its offset and the limit`(kind: FramingKind) throws {
        var generator = SeededGenerator(seed: 1)
        let (short, long) = (kind.message(3, &generator), kind.message(200, &generator))
        let first = try kind.framer().frame(for: short)
        let second = try kind.framer().frame(for: long)
        var framer = kind.framer(limit: 100)
        let result = framer.cut([first + second.prefix(150)])
        let length =
            kind == .newline || kind == .delimiter
            ? "more than 100 bytes" : "\(long.count) bytes, more than 100"
        #expect(result.messages == [short])
        #expect(result.error == "message at offset \(first.count): \(length)")
        #expect(framer.byteCount == first.count)
        #expect(framer.cut([first]).error == result.error, "the error lasts")
        #expect(throws: Framer.InvalidMessage.self) { try framer.frame(for: long) }
    }

    @Test(arguments: FramingKind.allCases)
    func `a message of as many bytes as the limit is cut and framed, and one byte more is not`(
        kind: FramingKind
    ) throws {
        var generator = SeededGenerator(seed: 3)
        let (message, long) = (kind.message(100, &generator), kind.message(101, &generator))
        var framer = kind.framer(limit: message.count)
        #expect(framer.cut([try framer.frame(for: message)]) == ([message], nil))
        #expect(throws: Framer.InvalidMessage.self) { try framer.frame(for: long) }
        #expect(framer.cut([try kind.framer().frame(for: long)]).messages.isEmpty)
    }

    @Test func `a prefix limits what it can tell`() {
        #expect(Framer.lengthPrefix(UInt8.self).limit == 255)
        #expect(throws: Framer.InvalidMessage.self) {
            try Framer.lengthPrefix(UInt8.self).frame(for: [UInt8](repeating: 0, count: 256))
        }
        var framer = Framer.lengthPrefix(UInt64.self)
        #expect(framer.cut([[UInt8](repeating: 0xFF, count: 8)]).error?.contains("more than 1048576") == true)
    }

    @Test(arguments: [
        "Content-Length: 5x\r\n\r\n", "Content-Length: -5\r\n\r\n", "Content-Length: \r\n\r\n",
        "Content-Type: a\r\n\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        String(repeating: "a", count: 8192),
    ])
    func `a malformed header block is an error`(block: String) {
        var framer = Framer.contentLength()
        #expect(framer.cut([Array(block.utf8)]).error == "message at offset 0: the length is malformed")
    }

    @Test func `a header block may have other fields, in any case, and repeat the length`() {
        var framer = Framer.contentLength()
        let block = "Content-Type: a; b=c\r\nCONTENT-length:\t 2 \r\ncontent-length: 2\r\n\r\nok"
        #expect(framer.cut([Array(block.utf8)]) == ([Array("ok".utf8)], nil))
    }

    @Test func `a varint of more than 64 bits is malformed`() {
        var framer = Framer.varintPrefix()
        let error = framer.cut([[UInt8](repeating: 0x80, count: 9) + [2]]).error
        #expect(error == "message at offset 0: the length is malformed")
    }

    @Test func `a varint has at most ten bytes`() {
        // The tenth holds the highest of the 64 bits.
        var longest = Framer.varintPrefix()
        #expect(longest.cut([[UInt8](repeating: 0x80, count: 9) + [0]]) == ([[]], nil))
        var tooLong = Framer.varintPrefix()
        // No byte that follows would make it shorter.
        let error = tooLong.cut([[UInt8](repeating: 0x80, count: 10)]).error
        #expect(error == "message at offset 0: the length is malformed")
        var incomplete = Framer.varintPrefix()
        #expect(
            incomplete.cut([[UInt8](repeating: 0x80, count: 9)]).error
                == "message at offset 0: ended after 9 bytes")
    }

    @Test func `a message that contains its delimiter is not framed`() {
        for (delimiter, message) in [
            (LineTerminator.newline, "a\nb"), (.newline, "a\r"), (.bytes([97, 97, 98]), "xaa"),
        ] {
            let framer = Framer.delimiter(delimiter)
            if message == "xaa" {
                // The first occurrence of "aab" in "xaaaab" is later.
                #expect(throws: Never.self) { try framer.frame(for: Array(message.utf8)) }
            } else {
                #expect(throws: Framer.InvalidMessage.self) { try framer.frame(for: Array(message.utf8)) }
            }
        }
    }

    @Test func `the end within a message tells what has come, and the end between two is none`() throws {
        var framer = Framer.lengthPrefix(UInt16.self)
        #expect(framer.cut([[0, 2, 1, 2]]).error == nil)
        #expect(framer.cut([[0]]).error == "message at offset 4: ended after 1 bytes")
        #expect(framer.cut([[5, 1]]).error == "message at offset 4: ended after 3 of 7 bytes")
        #expect(framer.cut([[2, 3, 4, 5]]).messages == [[1, 2, 3, 4, 5]])
        var lines = Framer.delimiter()
        #expect(lines.cut([Array("a\nbc".utf8)]).error == "message at offset 2: ended after 2 bytes")
    }

    @Test(arguments: FramingKind.allCases)
    func `a receiver that has enough gets the rest when it is pushed again`(kind: FramingKind) throws {
        var generator = SeededGenerator(seed: 2)
        let messages = (0..<6).map { kind.message($0 * 20, &generator) }
        let stream = try messages.flatMap { try kind.framer().frame(for: $0) }
        var framer = kind.framer()
        var (received, position) = ([[UInt8]](), 0)
        while position < stream.count {
            // A part of each message comes before the rest of all.
            let reach = received.count % 2 == 0 ? position + 1 : stream.count
            position += try framer.push(Array(stream[position..<min(reach, stream.count)]).span.bytes) {
                message in
                received.append(message.withUnsafeBytes { Array($0) })
                return .enough
            }
            #expect(framer.byteCount == position)
        }
        #expect(received == messages)
    }

    @Test func `an error of the receiver leaves the framer after the message`() throws {
        var framer = Framer.lengthPrefix(UInt8.self)
        let stream: [UInt8] = [1, 7, 1, 8]
        #expect(throws: BadPacket.self) { try framer.push(stream.span.bytes) { _ in throw BadPacket() } }
        #expect(framer.byteCount == 2)
        #expect(framer.cut([[1, 8]]).messages == [[8]])
    }

    @Test func `what the length of a custom protocol throws ends the cutting`() {
        var framer = FramingKind.custom.framer()
        let result = framer.cut([[0x30, 1, 7, 0x30, 0x80, 0x80, 0x80, 0x80]])
        #expect(result.messages == [[0x30, 1, 7]] && result.error == "BadPacket()")
        var endless = Framer { _ in nil }
        #expect(
            endless.cut([[UInt8](repeating: 0, count: 64)]).error
                == "message at offset 0: the length is malformed")
    }
}
