/// A key, or a movement of the mouse. Lines and columns count from one.
enum TerminalEvent: Equatable {
    case up, down, pageUp, pageDown, home, end
    case character(UInt8)
    case wheel(lines: Int)
    case press(line: Int, column: Int)
    case drag(line: Int, column: Int)
    case release
}

/// Makes events of the bytes that a terminal sends. A pure value: a sequence may arrive in pieces.
struct TerminalParser {
    private enum State: Equatable {
        case ground
        case escape
        /// After `ESC [` or `ESC O`.
        case sequence(parameters: [UInt8])
    }

    /// A longer sequence is none of a terminal's.
    private static let longestSequence = 32
    /// How far a notch of the wheel moves the list.
    private static let wheelStep = 3

    private var state = State.ground

    mutating func events(of bytes: some Sequence<UInt8>) -> [TerminalEvent] { bytes.compactMap { next($0) } }

    private mutating func next(_ byte: UInt8) -> TerminalEvent? {
        switch (state, byte) {
        case (_, 0x1B): state = .escape
        case (.ground, _): return .character(byte)
        case (.escape, UInt8(ascii: "[")), (.escape, UInt8(ascii: "O")): state = .sequence(parameters: [])
        // The key Esc, or Alt and another key.
        case (.escape, _):
            state = .ground
            return .character(byte)
        case (.sequence(let parameters), 0x20...0x3F) where parameters.count < Self.longestSequence:
            state = .sequence(parameters: parameters + [byte])
        case (.sequence(let parameters), 0x40...0x7E):
            state = .ground
            return Self.event(String(decoding: parameters, as: UTF8.self), Character(Unicode.Scalar(byte)))
        default: state = .ground
        }
        return nil
    }

    private static func event(_ parameters: String, _ final: Character) -> TerminalEvent? {
        switch (parameters, final) {
        case ("", "A"): .up
        case ("", "B"): .down
        case ("5", "~"): .pageUp
        case ("6", "~"): .pageDown
        case ("", "H"), ("1", "~"), ("7", "~"): .home
        case ("", "F"), ("4", "~"), ("8", "~"): .end
        case (_, "M"), (_, "m"): mouseEvent(parameters, isRelease: final == "m")
        default: nil
        }
    }

    /// `<` button `;` column `;` line, each of 16 bits, as in the size of a terminal. Moving adds 32 to the button, and the
    /// wheel's buttons begin at 64.
    private static func mouseEvent(_ parameters: String, isRelease: Bool) -> TerminalEvent? {
        let numbers = parameters.dropFirst().split(separator: ";").compactMap { UInt16($0) }
        guard parameters.first == "<", numbers.count == 3 else { return nil }
        switch numbers[0] {
        case 0 where isRelease: return .release
        case 0: return .press(line: Int(numbers[2]), column: Int(numbers[1]))
        case 32: return .drag(line: Int(numbers[2]), column: Int(numbers[1]))
        case 64: return .wheel(lines: -wheelStep)
        case 65: return .wheel(lines: wheelStep)
        default: return nil
        }
    }
}
