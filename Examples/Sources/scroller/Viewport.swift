/// The part of a list that is in sight. A pure value.
struct Viewport: Equatable {
    /// The number of rows in the list.
    var count = 0 { didSet { clamp() } }
    /// The number of rows in sight.
    var height = 0 { didSet { clamp() } }
    /// The first row in sight.
    private(set) var top = 0

    var rows: Range<Int> { top..<min(count, top + height) }

    mutating func scroll(to row: Int) {
        top = row
        clamp()
    }

    mutating func scroll(by rows: Int) { scroll(to: top + rows) }

    /// Scrolls to the place of `line` on a scroll bar that is as high as the list, or to its nearer end.
    mutating func scroll(toBarLine line: Int) {
        guard height > 1 else { return scroll(to: 0) }
        scroll(to: max(0, min(line, height - 1)) * (count - height) / (height - 1))
    }

    private mutating func clamp() {
        top = max(0, min(top, count - height))
    }

    /// The line of the scroll bar's mark.
    var barLine: Int { count > height ? top * (height - 1) / (count - height) : 0 }
}
