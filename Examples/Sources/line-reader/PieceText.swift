import Reactor

/// Finds out whether a line is UTF-8 that comes in pieces, which may be cut inside a character.
struct PieceText: Sendable {
    /// Whether the pieces before were.
    private var wasValid = true
    /// The first bytes of a character that the last piece cut off.
    private var beginning: [UInt8] = []

    /// Takes the next piece of a line. Whether the line is UTF-8 as far as it is known; for sure after the last piece.
    mutating func isValid(with piece: RawSpan, isLast: Bool) -> Bool {
        if isLast, beginning.isEmpty, wasValid { return piece.isValidUTF8 }
        let taken = completeCharacter(from: piece, isLast: isLast)
        let rest = piece.extracting(droppingFirst: taken)
        let cut = isLast ? 0 : Self.cutOff(rest)
        let isValid = rest.extracting(droppingLast: cut).isValidUTF8
        wasValid = wasValid && isValid
        if cut > 0 { beginning = Self.copy(rest.extracting(last: cut)) }
        defer { if isLast { self = PieceText() } }
        return wasValid
    }

    /// Takes the rest of a character that the last piece cut off: how many bytes that were.
    private mutating func completeCharacter(from piece: RawSpan, isLast: Bool) -> Int {
        guard let first = beginning.first else { return 0 }
        let missing = Self.length(first) - beginning.count
        beginning += Self.copy(piece.extracting(first: missing))
        if isLast || piece.byteCount >= missing {
            let isValid = unsafe beginning.span.bytes.isValidUTF8
            wasValid = wasValid && isValid
            beginning = []
        }
        return min(missing, piece.byteCount)
    }

    /// How many bytes at the end begin a character that needs more.
    private static func cutOff(_ bytes: RawSpan) -> Int {
        for count in 1...3 where count <= bytes.byteCount {
            let byte = unsafe bytes.unsafeLoad(fromByteOffset: bytes.byteCount - count, as: UInt8.self)
            if byte >= 0xC0 { return length(byte) > count ? count : 0 }
            if byte < 0x80 { return 0 }
        }
        return 0
    }

    /// How many bytes a character has that begins with `byte`.
    private static func length(_ byte: UInt8) -> Int { byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2 }

    private static func copy(_ bytes: RawSpan) -> [UInt8] {
        unsafe bytes.withUnsafeBytes { unsafe Array($0) }
    }
}
