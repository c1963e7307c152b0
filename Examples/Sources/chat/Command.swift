/// A line that a guest sent, parsed as a command.
enum Command: Equatable {
    case say(String)
    case nick(String)
    case who
    case quit
    /// Any other line that begins with a slash.
    case unknown(String)

    init(_ line: String) {
        // Without control characters, a guest cannot send escape sequences to the others' terminals.
        let text = String(line.unicodeScalars.filter { $0.properties.generalCategory != .control })
        guard text.first == "/" else {
            self = .say(text)
            return
        }
        let words = text.dropFirst().split(separator: " ").map(String.init)
        switch (words.first, words.dropFirst().first) {
        case ("nick", let name?) where Self.isName(name): self = .nick(name)
        case ("who", nil): self = .who
        case ("quit", nil): self = .quit
        default: self = .unknown(words.joined(separator: " "))
        }
    }

    private static func isName(_ text: String) -> Bool {
        text.count <= 20 && text.allSatisfy { $0.isLetter || $0.isNumber }
    }
}
