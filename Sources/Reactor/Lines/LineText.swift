import CReactorLinux
public import SystemPackage

/// What to do with a line that is not UTF-8.
@nonexhaustive public enum TextPolicy: Sendable, Hashable {
    /// Each ill-formed sequence becomes U+FFFD, as with `String(decoding:as:)`.
    case repair
    /// Throw `InvalidText`.
    case fail
}

/// A line was not UTF-8.
public struct InvalidText: ReactorError, Hashable {
    /// The line's number, from one.
    public let number: Int
    /// The offset in the stream of the first ill-formed sequence.
    public let offset: Int

    /// The line.
    public var subject: String { "line \(number)" }
    /// `Errno.illegalByteSequence`.
    public var errno: Errno? { .illegalByteSequence }
    /// The line, and where it is not UTF-8.
    public var description: String { "\(subject) is not UTF-8 at offset \(offset)" }
}

extension LineFramer.Line {
    /// Creates a string of this line's bytes.
    ///
    /// A truncated line, or a piece of one, may end inside a character, which is then ill-formed.
    ///
    /// - Parameters:
    ///   - bytes: The bytes that were delivered with this value.
    ///   - policy: What to do with bytes that are not UTF-8.
    /// - Throws: `InvalidText`, only if `policy` is `.fail`.
    public func text(_ bytes: RawSpan, _ policy: TextPolicy = .repair) throws(InvalidText) -> String {
        do throws(UTF8.ValidationError) {
            return unsafe String(unchecked: bytes, isKnownASCII: try bytes.validate() == .ascii)
        } catch {
            if policy == .fail {
                throw InvalidText(number: number, offset: offset + error.byteOffsets.lowerBound)
            }
            return bytes.withAddress { start, count in
                unsafe String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
            }
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

/// What is known of bytes as text.
@usableFromInline
enum Validation: Sendable { case unknown, utf8, ascii }

/// The part of a push that is known to be UTF-8.
@usableFromInline
struct CheckedText: Sendable {
    /// The part begins and ends at the push's first and last whole character. Initially no part.
    @usableFromInline var start = 0
    @usableFromInline var end = -1
    @usableFromInline var validation = Validation.unknown

    @inlinable init() {}

    /// Validates the bytes, except for characters that may be cut off at either end. Nothing is known if any
    /// sequence is ill-formed.
    init(_ bytes: RawSpan) {
        var first = 0
        while first < min(3, bytes.byteCount), bytes[first] & 0xC0 == 0x80 { first += 1 }
        let whole = bytes.extracting(droppingFirst: first)
        let text = whole.extracting(droppingLast: whole.cutOffCount)
        (start, end, validation) = (first, first + text.byteCount, text.validateVectors())
    }

    /// What is known of a line in the push.
    @inlinable
    func validation(from start: Int, to end: Int) -> Validation {
        start >= self.start && end <= self.end ? validation : .unknown
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
    public var isValidUTF8: Bool { (try? validate()) != nil }

    /// The C validator is several times as fast as the standard library for text that is not only ASCII. It
    /// does not accept short spans, and does not tell where an ill-formed sequence is.
    fileprivate func validate() throws(UTF8.ValidationError) -> Validation {
        let known = validateVectors()
        if known != .unknown { return known }
        let result = withUnits { units in
            Result { () throws(UTF8.ValidationError) in try UTF8Span(validating: units).isKnownASCII }
        }
        return try result.get() ? .ascii : .utf8
    }

    fileprivate func withUnits<Result>(_ body: (Span<UInt8>) -> Result) -> Result {
        withAddress { start, count in
            unsafe body(
                UnsafeBufferPointer(start: start?.assumingMemoryBound(to: UInt8.self), count: count).span)
        }
    }

    fileprivate func validateVectors() -> Validation {
        switch withAddress({ unsafe reactor_check_text($0, $1) }) {
        case reactor_text_ascii: .ascii
        case reactor_text_utf8: .utf8
        default: .unknown
        }
    }
}
