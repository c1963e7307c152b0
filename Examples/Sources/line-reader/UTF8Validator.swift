import Reactor

/// Validates a line that arrives in parts, which may be split within a character.
struct UTF8Validator: Sendable {
    /// Whether the complete characters so far are valid.
    private var wasValid = true
    /// The first bytes of a character that was split at the end of the last part.
    private var incompleteCharacter: [UInt8] = []

    /// Validates the next part of a line. Whether the line is valid so far; final after its last part.
    mutating func isValid(appending part: RawSpan, isLast: Bool) -> Bool {
        if isLast, incompleteCharacter.isEmpty, wasValid { return part.isValidUTF8 }
        let consumed = completeCharacter(from: part, isLast: isLast)
        let rest = part.extracting(droppingFirst: consumed)
        let split = isLast ? 0 : Self.incompleteSuffixLength(of: rest)
        let isValid = rest.extracting(droppingLast: split).isValidUTF8
        wasValid = wasValid && isValid
        if split > 0 { incompleteCharacter = Self.array(rest.extracting(last: split)) }
        defer { if isLast { self = UTF8Validator() } }
        return wasValid
    }

    /// Completes the character that was split at the end of the last part. Returns the number of bytes consumed.
    private mutating func completeCharacter(from part: RawSpan, isLast: Bool) -> Int {
        guard let lead = incompleteCharacter.first else { return 0 }
        let missing = Self.characterLength(lead) - incompleteCharacter.count
        incompleteCharacter += Self.array(part.extracting(first: missing))
        if isLast || part.byteCount >= missing {
            let isValid = unsafe incompleteCharacter.span.bytes.isValidUTF8
            wasValid = wasValid && isValid
            incompleteCharacter = []
        }
        return min(missing, part.byteCount)
    }

    /// The number of bytes at the end that begin a longer character.
    private static func incompleteSuffixLength(of bytes: RawSpan) -> Int {
        for count in 1...3 where count <= bytes.byteCount {
            let byte = unsafe bytes.unsafeLoad(fromByteOffset: bytes.byteCount - count, as: UInt8.self)
            if byte >= 0xC0 { return characterLength(byte) > count ? count : 0 }
            if byte < 0x80 { return 0 }
        }
        return 0
    }

    /// The length in bytes of a character that begins with `lead`.
    private static func characterLength(_ lead: UInt8) -> Int { lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2 }

    private static func array(_ bytes: RawSpan) -> [UInt8] {
        unsafe bytes.withUnsafeBytes { unsafe Array($0) }
    }
}
