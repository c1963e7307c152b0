public import SystemPackage

/// Cuts a byte stream into messages, and frames messages for it: one value for delegates and tasks. Pure: no descriptor, no
/// loop, no clock.
///
/// A task iterates over ``Connection/messages(_:timeout:shutdown:)`` or ``InputStream/messages(_:timeout:shutdown:)``. A
/// delegate keeps a framer, and pushes what it receives:
///
/// ```swift
/// var framer = Framer.lengthPrefix(UInt32.self, limit: 65_536)
/// try connection.send(framer.frame(for: request))
/// try framer.push(connection.receive().span.bytes) { message in
///     print(message.byteCount)
///     return .more
/// }
/// ```
///
/// A message within one push is delivered where it lies. Only one that straddles pushes is copied, once, into a buffer that
/// grows with the bytes that have come, and not with the length that the peer announces. The messages are the same however the
/// bytes arrive, and each byte is looked at once.
public struct Framer: Sendable {
    /// One mebibyte: longer than most messages, and little memory for a connection.
    public static let defaultLimit = LineFramer.defaultLimit

    /// The maximum number of bytes of a message, without what frames it.
    public let limit: Int

    let format: Format
    /// Cuts messages that end with a delimiter.
    private var lines: LineFramer?
    /// The bytes of a message that has not ended, from the beginning of its frame.
    private var carry: [UInt8] = []
    /// Where that message lies in its frame, once it is known.
    private var frame: Frame?
    /// The offset in the stream of the frame that has not ended.
    private var frameStart = 0
    private var failure: (any Error)?

    /// Messages that begin with their length: an unsigned integer, big-endian, which counts the bytes after it.
    ///
    /// - Parameters:
    ///   - type: The integer's type, such as `UInt32.self`.
    ///   - limit: The maximum number of bytes of a message.
    /// - Precondition: `limit` is positive; the type has at most 64 bits.
    public static func lengthPrefix<Prefix: FixedWidthInteger & UnsignedInteger>(
        _ type: Prefix.Type, limit: Int = defaultLimit
    ) -> Framer {
        let width = Prefix.bitWidth / 8
        require(width <= 8, "Framer.lengthPrefix needs an integer of at most 64 bits, not \(type).")
        return Framer(.prefix(width: width), limit: min(limit, Int(clamping: Prefix.max)))
    }

    /// Messages that begin with their length as a varint, as Protocol Buffers have it: seven bits in a byte, the least
    /// significant first, and the eighth bit in all bytes but the last.
    ///
    /// - Parameter limit: The maximum number of bytes of a message.
    /// - Precondition: `limit` is positive.
    public static func varintPrefix(limit: Int = defaultLimit) -> Framer { Framer(.varint, limit: limit) }

    /// Messages that begin with a header block, as the Language Server Protocol has it: `Content-Length: 42`, perhaps other
    /// fields, which are ignored, and an empty line. Lines end in CR LF; the block has at most 8 KiB.
    ///
    /// - Parameter limit: The maximum number of bytes of a message, without its header block.
    /// - Precondition: `limit` is positive.
    public static func contentLength(limit: Int = defaultLimit) -> Framer {
        Framer(.contentLength, limit: limit)
    }

    /// Messages that end with a delimiter, such as JSON texts in lines. They are cut by a ``LineFramer``; but a message without
    /// its delimiter at the end of the stream has been cut short, and is no message.
    ///
    /// - Parameters:
    ///   - delimiter: What ends a message: an end of line, or other bytes.
    ///   - limit: The maximum number of bytes of a message, without the delimiter.
    /// - Precondition: `limit` is positive; a delimiter of bytes has at least one.
    public static func delimiter(_ delimiter: LineTerminator = .newline, limit: Int = defaultLimit) -> Framer
    {
        var framer = Framer(.delimiter(delimiter), limit: limit)
        framer.lines = LineFramer(terminator: delimiter, limit: limit)
        return framer
    }

    /// Messages of another binary protocol, whose first bytes tell their length. They are delivered with these bytes.
    ///
    /// ```swift
    /// let postgres = Framer { beginning in  // a type, and a length that counts itself
    ///     guard beginning.count >= 5 else { return nil }
    ///     return 1 + (1..<5).reduce(0) { $0 << 8 | Int(beginning[$1]) }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - limit: The maximum number of bytes of a message.
    ///   - length: Returns how many bytes the message has, given its first ones: all that have come, but no more than 64. Nil
    ///     if they do not tell; it is called again when there are more. What it throws ends the cutting.
    /// - Precondition: `limit` is positive.
    public init(
        limit: Int = defaultLimit, length: @escaping @Sendable (_ beginning: Span<UInt8>) throws -> Int?
    ) {
        self.init(.custom(length), limit: limit)
    }

    private init(_ format: Format, limit: Int) {
        require(limit > 0, "Framer.limit must be positive, not \(limit).")
        (self.format, self.limit) = (format, limit)
    }

    /// The number of bytes consumed, including those of a message that has not ended. After ``InvalidMessage``, of those before
    /// that message.
    public var byteCount: Int { lines?.byteCount ?? (failure == nil ? frameStart + carry.count : frameStart) }

    // MARK: Cutting

    /// Consumes the stream's next bytes, and calls `body` for each message that they end, in order.
    ///
    /// A message counts as delivered once `body` has been called, whether it returns or throws. When `body` throws or returns
    /// `.enough`, the framer consumes no more. To continue, push the bytes after those that were consumed; after a throw,
    /// ``byteCount`` tells how many there were.
    ///
    /// - Parameters:
    ///   - bytes: Any number of bytes, borrowed for this call.
    ///   - body: Receives the message, borrowed until it returns.
    /// - Returns: The number of bytes consumed: all, unless `body` returned `.enough`.
    /// - Throws: The error of `body`; ``InvalidMessage`` if the length is malformed or above the limit, and then at every later
    ///   call.
    @discardableResult
    public mutating func push(
        _ bytes: RawSpan, _ body: (RawSpan) throws -> LineFramer.Demand
    ) throws -> Int {
        try cut(bytes) { message, _ in try body(message) }
    }

    /// Checks that no message has been cut short. Called when the stream has ended.
    ///
    /// - Throws: ``InvalidMessage`` with ``InvalidMessage/Reason/ended(bytesReceived:bytesRequested:)``; the error that ended
    ///   the cutting before.
    public func finish() throws {
        if let failure { throw failure }
        let pending = pending
        guard !pending.isEmpty else { return }
        throw InvalidMessage(
            offset: byteCount - pending.count,
            .ended(bytesReceived: pending.count, bytesRequested: frame?.count))
    }

    /// The bytes of the message that has not ended, with those that frame it.
    var pending: [UInt8] { lines?.carry ?? carry }

    /// Where a message lies in its stream.
    struct Place {
        /// The offset of its first byte.
        let offset: Int
        let count: Int
        /// The offset after what frames it.
        let end: Int
    }

    /// As ``push(_:_:)``, with the place of each message.
    mutating func cut(
        _ bytes: RawSpan, _ body: (RawSpan, Place) throws -> LineFramer.Demand
    ) throws -> Int {
        if let failure { throw failure }
        if lines != nil { return try cutLines(bytes, body) }
        var position = 0
        while position < bytes.byteCount {
            let rest = bytes.extracting(droppingFirst: position)
            if carry.isEmpty {
                frame = try record(Result { try locate(in: rest) })
                guard let frame, frame.count <= rest.byteCount else {
                    append(rest)
                    return bytes.byteCount
                }
                position += frame.count
                if try body(rest.extracting(frame.message), endFrame(frame)) == .enough { break }
            } else {
                position += try fill(from: rest)
                if try deliverCarried(body) == .enough { break }
            }
        }
        return position
    }

    private mutating func cutLines(
        _ bytes: RawSpan, _ body: (RawSpan, Place) throws -> LineFramer.Demand
    ) throws -> Int {
        do {
            return try lines!.push(bytes) { bytes, line in
                let end = line.offset + bytes.byteCount + line.terminatorLength
                return try body(bytes, Place(offset: line.offset, count: bytes.byteCount, end: end))
            }
        } catch let error as LineFramer.LineTooLong {
            let reason = InvalidMessage.Reason.tooLong(byteCount: nil, limit: limit)
            return try record(.failure(InvalidMessage(offset: error.offset, reason)))
        }
    }

    // MARK: Messages that straddle pushes

    /// Takes bytes of the message that has not ended. Returns how many.
    private mutating func fill(from bytes: RawSpan) throws -> Int {
        var count = 0
        // As few as tell the length: what comes after the message is none of its bytes.
        while frame == nil, count < bytes.byteCount {
            carry.append(bytes[count])
            count += 1
            frame = try record(
                Result { try carry.withBytes { try locate(in: $0, checked: $0.byteCount - 1) } })
        }
        guard let frame else { return count }
        let rest = bytes.extracting(droppingFirst: count).extracting(first: frame.count - carry.count)
        append(rest)
        return count + rest.byteCount
    }

    private mutating func append(_ bytes: RawSpan) {
        let needed = carry.count + bytes.byteCount
        if let frame, needed > carry.capacity {
            carry.reserveCapacity(max(needed, min(2 * carry.capacity, frame.count)))
        }
        carry.append(bytes)
    }

    private mutating func deliverCarried(
        _ body: (RawSpan, Place) throws -> LineFramer.Demand
    ) throws -> LineFramer.Demand {
        guard let frame, carry.count == frame.count else { return .more }
        var bytes: [UInt8] = []
        swap(&bytes, &carry)
        defer {
            if bytes.capacity <= LineFramer.keptCapacity {
                bytes.removeAll(keepingCapacity: true)
                carry = bytes
            }
        }
        let place = endFrame(frame)
        return try bytes.withBytes { try body($0.extracting(frame.message), place) }
    }

    private mutating func endFrame(_ frame: Frame) -> Place {
        let start = frameStart
        frameStart += frame.count
        self.frame = nil
        return Place(
            offset: start + frame.message.lowerBound, count: frame.message.count, end: frameStart)
    }

    // MARK: Lengths

    /// Where the message lies whose frame begins with `bytes`; nil if they do not tell.
    ///
    /// - Parameter checked: How many bytes did not tell.
    private func locate(in bytes: RawSpan, checked: Int = 0) throws -> Frame? {
        do {
            let frame = try format.locate(in: bytes, checked: checked)
            guard let frame, frame.message.count > limit else { return frame }
            throw InvalidFrame(.tooLong(byteCount: frame.message.count, limit: limit))
        } catch let error as InvalidFrame {
            throw InvalidMessage(offset: frameStart, error.reason)
        }
    }

    /// Records an error, which ends the cutting.
    private mutating func record<Success>(_ result: Result<Success, any Error>) throws -> Success {
        do { return try result.get() } catch {
            failure = error
            carry = []
            throw error
        }
    }
}

extension Framer {
    /// A message that cannot be cut, or framed.
    public struct InvalidMessage: ReactorError, Hashable {
        /// The offset in the stream where its frame begins; 0 for a message to be framed.
        public let offset: Int
        /// The reason.
        public let reason: Reason

        init(offset: Int, _ reason: Reason) { (self.offset, self.reason) = (offset, reason) }

        /// The message.
        public var subject: String { "message at offset \(offset)" }
        /// `Errno.messageTooLong`, `Errno.noData` if it was cut short, or `Errno.badMessage`.
        public var errno: Errno? {
            switch reason {
            case .tooLong: .messageTooLong
            case .ended: .noData
            case .malformedLength, .containsDelimiter: .badMessage
            }
        }
        /// Where the message is, and what is wrong with it.
        public var description: String { "\(subject): \(reason)" }

        /// Why a message is not valid.
        @nonexhaustive public enum Reason: Sendable, Hashable {
            /// It has more bytes than the limit: so many, or nil if it has not ended within the limit.
            case tooLong(byteCount: Int?, limit: Int)
            /// The bytes before it are not a length of the format.
            case malformedLength
            /// The stream ended after so many bytes of the frame. It has so many, or nil if that is not known.
            case ended(bytesReceived: Int, bytesRequested: Int?)
            /// A message to be framed contains the delimiter.
            case containsDelimiter
        }
    }
}

extension Framer.InvalidMessage.Reason: CustomStringConvertible {
    /// The reason, as a sentence's end.
    public var description: String {
        switch self {
        case .tooLong(let count, let limit):
            count.map { "\($0) bytes, more than \(limit)" } ?? "more than \(limit) bytes"
        case .malformedLength: "the length is malformed"
        case .ended(let received, let requested):
            "ended after \(received)\(requested.map { " of \($0)" } ?? "") bytes"
        case .containsDelimiter: "it contains the delimiter"
        }
    }
}
