/// How far a download has come, as a line of a terminal.
struct Bar {
    let label: String
    /// From 0 to 1; nil if it is not known.
    let fraction: Double?
    let bytes: Int
    /// Bytes in a second.
    let rate: Int?

    init(_ label: String, _ fraction: Double?, _ bytes: Int, _ rate: Int?) {
        (self.label, self.fraction, self.bytes, self.rate) = (label, fraction, bytes, rate)
    }

    private static let mostLabelColumns = 24
    private static let barColumns = 10...40

    /// The line in at most `columns` columns; what has no room is left out, from the right.
    func line(columns: Int, isColored: Bool) -> String {
        var figures = ""
        for figure in [
            percentage, bytes.inUnits.padded(to: 9), rate.map { ($0.inUnits + "/s").padded(to: 11) },
        ] {
            guard let figure, figures.count + 2 + figure.count + 8 <= columns else { continue }
            figures += "  " + figure
        }
        let room = columns - figures.count
        let labelColumns = min(Self.mostLabelColumns, room)
        let name = Self.cut(label, to: labelColumns)
        guard let fraction, case let size = min(room - labelColumns - 4, Self.barColumns.upperBound),
            Self.barColumns.contains(size)
        else { return name + figures }
        let filled = Int(fraction * Double(size))
        let done = String(repeating: "#", count: filled)
        let rest = String(repeating: "-", count: size - filled)
        return name + "  [" + (isColored ? "\u{1B}[32m\(done)\u{1B}[0m" : done) + rest + "]" + figures
    }

    private var percentage: String? { fraction.map { "\(Int($0 * 100)) %".padded(to: 5) } }

    /// The text in exactly `columns` columns.
    private static func cut(_ text: String, to columns: Int) -> String {
        var (line, width) = ("", 0)
        for character in text {
            guard width + character.columns <= columns else { break }
            line.append(character)
            width += character.columns
        }
        return line + String(repeating: " ", count: columns - width)
    }
}

extension Character {
    /// Ideographs, kana, Hangul, fullwidth forms and symbols (UAX #11).
    private static let wide: [ClosedRange<UInt32>] = [
        0x1100...0x115F, 0x2E80...0xA4CF, 0xAC00...0xD7A3, 0xF900...0xFAFF, 0xFE30...0xFE6F, 0xFF00...0xFF60,
        0xFFE0...0xFFE6, 0x20000...0x3FFFD,
    ]

    /// How many columns of a terminal it takes.
    fileprivate var columns: Int {
        guard let scalar = unicodeScalars.first else { return 0 }
        let isWide = scalar.properties.isEmojiPresentation || Self.wide.contains { $0.contains(scalar.value) }
        return isWide ? 2 : 1
    }
}

extension String {
    fileprivate func padded(to count: Int) -> String {
        String(repeating: " ", count: max(0, count - self.count)) + self
    }
}
