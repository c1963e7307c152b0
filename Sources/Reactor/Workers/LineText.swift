import CReactorLinux

/// What becomes of a line's bytes that are not UTF-8.
public enum TextPolicy: Sendable, Hashable {
    /// Each ill-formed sequence becomes U+FFFD, as with `String(decoding:as:)`.
    case repair
    /// The line is no text: `InvalidText` is thrown.
    case report
}

/// A line was not UTF-8.
public struct InvalidText: Error, Sendable, Hashable {
    /// The line's number, from one.
    public let number: Int
    /// The place of the first byte of the first ill-formed sequence in the stream, in bytes from zero.
    public let offset: Int
}

extension LineFramer.Line {
    /// Makes text of this line's bytes.
    ///
    /// A truncated line, or a piece of one, may end inside a character, which is then ill-formed.
    ///
    /// - Parameters:
    ///   - bytes: What was delivered with this value.
    ///   - policy: What becomes of bytes that are not UTF-8.
    /// - Throws: `InvalidText`, only if `policy` is `.report`.
    public func text(_ bytes: RawSpan, _ policy: TextPolicy = .repair) throws(InvalidText) -> String {
        let (prefix, isASCII) = bytes.utf8Prefix
        if prefix < bytes.byteCount {
            guard policy == .repair else { throw InvalidText(number: number, offset: offset + prefix) }
            return unsafe bytes.withUnsafeBytes { unsafe String(decoding: $0, as: UTF8.self) }
        }
        return unsafe String(unchecked: bytes, isASCII: isASCII)
    }
}

extension String {
    /// Copies bytes that are known to be UTF-8, and whether they are ASCII.
    @unsafe
    init(unchecked bytes: RawSpan, isASCII: Bool) {
        self = unsafe bytes.withUnsafeBytes { buffer in
            let units = unsafe buffer.assumingMemoryBound(to: UInt8.self).span
            return unsafe String(copying: UTF8Span(unchecked: units, isKnownASCII: isASCII))
        }
    }
}

extension RawSpan {
    /// Whether the bytes are whole, well-formed UTF-8 characters. No bytes are.
    public var isValidUTF8: Bool { utf8Prefix.count == byteCount }

    /// How many of the first bytes are valid UTF-8, and whether all bytes are ASCII.
    fileprivate var utf8Prefix: (count: Int, isASCII: Bool) {
        unsafe withUnsafeBytes { buffer in
            guard let first = buffer.baseAddress else { return (0, true) }
            var isASCII = false
            let bytes = unsafe first.assumingMemoryBound(to: UInt8.self)
            return unsafe (reactor_utf8_prefix(bytes, buffer.count, &isASCII), isASCII)
        }
    }
}
