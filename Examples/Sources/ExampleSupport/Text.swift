extension Int {
    /// The number with a noun: `1 row`, `2 rows`.
    package func counting(_ noun: String) -> String { "\(self) \(noun)\(self == 1 ? "" : "s")" }
}

extension Unicode.Scalar {
    /// Whether a terminal shows it in its place: it neither moves the cursor nor reverses or hides text.
    package var isPrintable: Bool {
        switch properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: false
        default: true
        }
    }
}
