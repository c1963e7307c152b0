/// What ends a line.
public enum LineTerminator: Sendable, Hashable {
    /// LF. A CR before it belongs to the line.
    case lineFeed
    /// LF, or CR LF: what text files of either origin need. A CR anywhere else belongs to the line.
    case newline
    /// CR LF, as most Internet protocols ask. A lone CR or LF belongs to the line.
    case carriageReturnLineFeed
    /// These bytes, the first time they appear: "aab" ends the line "a" of "aaab".
    ///
    /// A framer traps when there are none.
    case bytes([UInt8])
}

extension LineTerminator {
    /// The bytes that always end a line.
    var sequence: [UInt8] {
        switch self {
        case .lineFeed, .newline: [.lineFeed]
        case .carriageReturnLineFeed: [.carriageReturn, .lineFeed]
        case .bytes(let bytes): bytes
        }
    }

    var carriageReturn: CarriageReturn {
        switch self {
        case .newline: .optional
        case .carriageReturnLineFeed, .bytes([.carriageReturn, .lineFeed]): .required
        case .lineFeed, .bytes: .ordinary
        }
    }

    /// The most bytes that one terminator takes.
    var greatestLength: Int { self == .newline ? 2 : sequence.count }
}

/// What a carriage return is before the last byte of a terminator.
@usableFromInline
enum CarriageReturn: Sendable {
    case ordinary, optional, required
}

extension UInt8 {
    static var lineFeed: UInt8 { 0x0A }
    @inlinable static var carriageReturn: UInt8 { 0x0D }
}
