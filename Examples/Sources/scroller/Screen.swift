/// The bytes that draw a screen: a header, the rows in sight, and a scroll bar at the right.
struct Screen {
    let text: String

    init(_ size: (lines: Int, columns: Int), _ header: String, _ viewport: Viewport, _ texts: [Int: String]) {
        guard size.lines >= 3, size.columns >= 20 else {
            text = "\u{1B}[H\u{1B}[2JToo small".prefix(7 + size.columns).description
            return
        }
        var lines = ["\u{1B}[H\u{1B}[7m\(Self.clipped(header, size.columns))\u{1B}[K\u{1B}[m"]
        for line in 0..<viewport.height {
            let row = viewport.top + line
            let content = row < viewport.count ? texts[row] ?? "…" : ""
            let mark = line == viewport.barLine ? "█" : "│"
            lines.append(
                "\(Self.clipped(content, size.columns - 2))\u{1B}[K\u{1B}[\(line + 2);\(size.columns)H\(mark)"
            )
        }
        text = lines.joined(separator: "\r\n")
    }

    /// The terminal cuts off what is still too wide.
    private static func clipped(_ text: String, _ columns: Int) -> Substring { text.prefix(columns) }
}
