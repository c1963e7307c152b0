import CReactorLinux

/// What to do with a line that is not UTF-8.
public enum TextPolicy: Sendable, Hashable {
    /// Each ill-formed sequence becomes U+FFFD, as with `String(decoding:as:)`.
    case repair
    /// Throw `InvalidText`.
    case report
}

/// A line was not UTF-8.
public struct InvalidText: Error, Sendable, Hashable {
    /// The line's number, from one.
    public let number: Int
    /// The offset in the stream of the first ill-formed sequence.
    public let offset: Int
}

extension LineFramer.Line {
    /// Creates a string of this line's bytes.
    ///
    /// A truncated line, or a piece of one, may end inside a character, which is then ill-formed.
    ///
    /// - Parameters:
    ///   - bytes: The bytes that were delivered with this value.
    ///   - policy: What to do with bytes that are not UTF-8.
    /// - Throws: `InvalidText`, only if `policy` is `.report`.
    public func text(_ bytes: RawSpan, _ policy: TextPolicy = .repair) throws(InvalidText) -> String {
        switch bytes.check() {
        case .text(let isASCII): return unsafe String(unchecked: bytes, isKnownASCII: isASCII)
        case .invalid where policy == .repair:
            return bytes.withAddress { start, count in
                unsafe String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
            }
        case .invalid(let place): throw InvalidText(number: number, offset: offset + place)
        }
    }
}

extension String {
    /// Copies bytes that are known to be UTF-8.
    @unsafe
    init(unchecked bytes: RawSpan, isKnownASCII: Bool) {
        self = bytes.withUnits { units in
            var text = unsafe UTF8Span(unchecked: units, isKnownASCII: isKnownASCII)
            _ = text.checkForASCII()
            return String(copying: text)
        }
    }
}

/// The part of a push that is known to be UTF-8.
@usableFromInline
struct CheckedText: Sendable {
    /// The part begins and ends at the push's first and last whole character. Initially no part.
    @usableFromInline var start = 0
    @usableFromInline var end = -1
    @usableFromInline var isASCII = false

    @inlinable init() {}

    /// Validates the bytes, except for characters that may be cut off at either end. Nothing is known if any
    /// sequence is ill-formed.
    init(_ bytes: RawSpan) {
        var first = 0
        while first < min(3, bytes.byteCount), bytes[first] & 0xC0 == 0x80 { first += 1 }
        let whole = bytes.extracting(droppingFirst: first)
        let text = whole.extracting(droppingLast: whole.cutOffCount)
        let finding = text.checkVectors()
        guard finding != reactor_text_unknown else { return }
        (start, end, isASCII) = (first, first + text.byteCount, finding == reactor_text_ascii)
    }

    /// What is known of a line in the push.
    @inlinable
    @inline(__always)
    func knowledge(from start: Int, to end: Int) -> LineFramer.Knowledge {
        start >= self.start && end <= self.end ? (isASCII ? .ascii : .utf8) : .nothing
    }
}

extension RawSpan {
    /// The number of bytes at the end that begin a character.
    fileprivate var cutOffCount: Int {
        for count in 1...3 where count <= byteCount {
            let byte = self[byteCount - count]
            if byte >= 0xC0 { return (byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2) > count ? count : 0 }
            if byte < 0x80 { return 0 }
        }
        return 0
    }

    /// Whether the bytes are whole, well-formed UTF-8 characters. True if there are none.
    public var isValidUTF8: Bool { if case .invalid = check() { false } else { true } }

    fileprivate enum Finding {
        case text(isASCII: Bool)
        /// Not UTF-8: the first ill-formed sequence begins at `place`.
        case invalid(place: Int)
    }

    /// The C validator is several times as fast as the standard library for text that is not only ASCII. It
    /// does not accept short spans, and does not tell where an ill-formed sequence is.
    fileprivate func check() -> Finding {
        switch checkVectors() {
        case reactor_text_ascii: return .text(isASCII: true)
        case reactor_text_utf8: return .text(isASCII: false)
        default: break
        }
        return withUnits { units in
            do throws(UTF8.ValidationError) {
                return .text(isASCII: try UTF8Span(validating: units).isKnownASCII)
            } catch {
                return .invalid(place: error.byteOffsets.lowerBound)
            }
        }
    }

    @inline(__always)
    fileprivate func withUnits<Result>(_ body: (Span<UInt8>) -> Result) -> Result {
        withAddress { start, count in
            unsafe body(
                UnsafeBufferPointer(start: start?.assumingMemoryBound(to: UInt8.self), count: count).span)
        }
    }

    fileprivate func checkVectors() -> reactor_text {
        withAddress { unsafe reactor_check_text($0, $1) }
    }
}
