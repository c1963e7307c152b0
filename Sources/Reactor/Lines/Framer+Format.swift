extension Framer {
    /// How messages are told apart.
    enum Format: Sendable {
        case prefix(width: Int)
        case varint
        case contentLength
        case delimiter(LineTerminator)
        case custom(@Sendable (Span<UInt8>) throws -> Int?)
    }

    /// A message and what comes before it.
    struct Frame: Sendable {
        /// The message's bytes, counted from the beginning of the frame.
        let message: Range<Int>

        init(after head: Int, _ count: Int) { message = head..<head + count }

        /// The number of all bytes.
        var count: Int { message.upperBound }
    }

    /// What is wrong with a message; ``InvalidMessage`` adds where it is.
    struct InvalidFrame: Error {
        let reason: InvalidMessage.Reason

        init(_ reason: InvalidMessage.Reason) { self.reason = reason }
    }
}

extension Framer.Format {
    /// 64 bits, seven in a byte.
    private static let longestVarint = 10
    /// The headers of binary protocols have fewer.
    fileprivate static let longestCustomHead = 64
    /// A length and a content type take 80 bytes. It bounds what a peer can make the framer look for.
    private static let longestBlock = 8192
    /// No message has more: sums of lengths cannot overflow.
    private static let greatestLength = UInt64(Int.max / 2)

    /// Where the message lies whose frame begins with `bytes`; nil if they do not tell.
    ///
    /// - Parameter checked: How many bytes did not tell.
    func locate(in bytes: RawSpan, checked: Int) throws -> Framer.Frame? {
        switch self {
        case .prefix(let width):
            guard bytes.byteCount >= width else { return nil }
            var length: UInt64 = 0
            for index in 0..<width { length = length << 8 | UInt64(bytes[index]) }
            return Framer.Frame(after: width, Int(min(length, Self.greatestLength)))
        case .varint: return try locateAfterVarint(in: bytes)
        case .contentLength: return try locateAfterBlock(in: bytes, checked: checked)
        case .custom(let length): return try locate(in: bytes, by: length)
        case .delimiter: return nil
        }
    }

    private func locateAfterVarint(in bytes: RawSpan) throws -> Framer.Frame? {
        var length: UInt64 = 0
        for index in 0..<min(bytes.byteCount, Self.longestVarint) {
            let byte = bytes[index]
            // The tenth byte has the last bit of 64.
            if index == Self.longestVarint - 1, byte > 1 { break }
            length |= UInt64(byte & 0x7F) << (7 * UInt64(index))
            if byte < 0x80 { return Framer.Frame(after: index + 1, Int(min(length, Self.greatestLength))) }
        }
        if bytes.byteCount < Self.longestVarint { return nil }
        throw Framer.InvalidFrame(.malformedLength)
    }

    private func locate(
        in bytes: RawSpan, by length: @Sendable (Span<UInt8>) throws -> Int?
    ) throws -> Framer.Frame? {
        let beginning = Span<UInt8>(_bytes: bytes.extracting(first: Self.longestCustomHead))
        if let count = try length(beginning) {
            // Bytes after the message must not be needed to tell: they come later, or never.
            let known = beginning.extracting(first: max(count, 0))
            guard count > 0, try count >= beginning.count || length(known) == count else {
                throw Framer.InvalidFrame(.malformedLength)
            }
            return Framer.Frame(after: 0, min(count, Int(Self.greatestLength)))
        }
        if beginning.count < Self.longestCustomHead { return nil }
        throw Framer.InvalidFrame(.malformedLength)
    }

    // MARK: Header blocks

    private func locateAfterBlock(in bytes: RawSpan, checked: Int) throws -> Framer.Frame? {
        let bytes = bytes.extracting(first: Self.longestBlock)
        guard let end = endOfBlock(in: bytes, checked: checked) else {
            if bytes.byteCount < Self.longestBlock { return nil }
            throw Framer.InvalidFrame(.malformedLength)
        }
        return Framer.Frame(after: end, try contentLength(of: bytes.extracting(first: end)))
    }

    /// Where the first empty line ends.
    private func endOfBlock(in bytes: RawSpan, checked: Int) -> Int? {
        var end = max(checked + 1, 4)
        while end <= bytes.byteCount {
            switch bytes[end - 1] {
            case .lineFeed:
                if bytes[end - 2] == .carriageReturn, bytes[end - 3] == .lineFeed,
                    bytes[end - 4] == .carriageReturn
                {
                    return end
                }
                end += 2
            case .carriageReturn: end += 1
            default: end += 4
            }
        }
        return nil
    }

    private func contentLength(of block: RawSpan) throws -> Int {
        var length: Int?
        var framer = LineFramer(terminator: .carriageReturnLineFeed, limit: Self.longestBlock)
        try framer.push(block) { line, _ in
            guard let value = value(of: line) else { return .more }
            let isNew = length == nil || length == value
            guard value >= 0, isNew else { throw Framer.InvalidFrame(.malformedLength) }
            length = value
            return .more
        }
        guard let length else { throw Framer.InvalidFrame(.malformedLength) }
        return length
    }

    /// The value of a field with the length: -1 if it is malformed; nil for other fields.
    private func value(of line: RawSpan) -> Int? {
        let name = "content-length:".utf8
        guard line.byteCount >= name.count else { return nil }
        for (index, letter) in name.enumerated() {
            let isUpper = (65...90).contains(line[index])
            if line[index] | (isUpper ? 0x20 : 0) != letter { return nil }
        }
        var digits = line.extracting(droppingFirst: name.count)
        while digits.byteCount > 0, digits[0] == 32 || digits[0] == 9 {
            digits = digits.extracting(droppingFirst: 1)
        }
        while let last = digits.last, last == 32 || last == 9 { digits = digits.extracting(droppingLast: 1) }
        guard digits.byteCount > 0 else { return -1 }
        var value = 0
        for index in 0..<digits.byteCount {
            guard (48...57).contains(digits[index]) else { return -1 }
            value = min(value * 10 + Int(digits[index] - 48), Int(Self.greatestLength) / 10)
        }
        return value
    }
}

extension RawSpan {
    fileprivate var last: UInt8? { isEmpty ? nil : self[byteCount - 1] }
}

// MARK: - Framing

extension Framer {
    /// A message with what frames it, ready to be sent.
    ///
    /// - Parameter message: At most ``limit`` bytes. With ``init(limit:length:)`` it has its length already, which is checked.
    /// - Returns: Bytes that the same framer cuts into this message.
    /// - Throws: ``InvalidMessage`` if there are no such bytes.
    public func frame(for message: [UInt8]) throws -> [UInt8] { try message.withBytes { try frame(for: $0) } }

    /// Frames bytes that it borrows; otherwise as ``frame(for:)-([UInt8])``.
    public func frame(for message: RawSpan) throws -> [UInt8] {
        guard message.byteCount <= limit else {
            throw InvalidMessage(offset: 0, .tooLong(byteCount: message.byteCount, limit: limit))
        }
        var frame = format.head(of: message.byteCount)
        frame.reserveCapacity(frame.count + message.byteCount + 2)
        frame.append(message)
        switch format {
        case .delimiter(let delimiter):
            frame += delimiter.sequence
            try check(frame, delimiter, message.byteCount)
        case .custom(let length):
            let beginning = Span<UInt8>(_bytes: message.extracting(first: Format.longestCustomHead))
            guard try length(beginning) == message.byteCount else {
                throw InvalidMessage(offset: 0, .malformedLength)
            }
        default: break
        }
        return frame
    }

    /// Throws if the delimiter is not only where a message of `count` bytes ends.
    private func check(_ frame: [UInt8], _ delimiter: LineTerminator, _ count: Int) throws {
        var framer = LineFramer(terminator: delimiter, limit: frame.count)
        var isWhole = false
        _ = try frame.withBytes { bytes in
            try framer.push(bytes) { message, _ in
                isWhole = message.byteCount == count
                return .enough
            }
        }
        if !isWhole { throw InvalidMessage(offset: 0, .containsDelimiter) }
    }
}

extension Framer.Format {
    /// What comes before a message of `count` bytes.
    fileprivate func head(of count: Int) -> [UInt8] {
        switch self {
        case .prefix(let width):
            return (0..<width).map { UInt8(truncatingIfNeeded: count >> (8 * (width - 1 - $0))) }
        case .varint:
            var (head, rest): ([UInt8], Int) = ([], count)
            while rest > 0x7F {
                head.append(UInt8(truncatingIfNeeded: rest) | 0x80)
                rest >>= 7
            }
            return head + [UInt8(rest)]
        case .contentLength: return Array("Content-Length: \(count)\r\n\r\n".utf8)
        case .delimiter, .custom: return []
        }
    }
}
