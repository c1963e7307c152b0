import Reactor

/// What has come of one file.
struct FileTotals {
    let path: String
    /// Whether the file was read to its end.
    private(set) var isWhole = false
    /// Why it was not, if there was a fault.
    private(set) var error: String?
    private(set) var lineCount = 0
    private(set) var byteCount = 0
    private(set) var longestLine = 0
    private(set) var invalidLineCount = 0

    /// A file that was not begun.
    init(path: String) { self.path = path }

    /// What was read of a file: all of it, or what came before a fault or a signal.
    init(path: String, _ report: HandoffReport<LineReader<LineVisitor>.Output>) {
        self.path = path
        switch report.ending {
        case .finished: isWhole = true
        case .failed(let error): self.error = Self.sentence(for: error)
        case .stopped, .cancelled: break
        }
        lineCount = report.output.lineCount
        byteCount = report.output.byteCount
        longestLine = report.output.longestLine
        invalidLineCount = report.output.value.invalidLineCount
    }

    /// Whether anything was read, or there is nothing to read.
    var isBegun: Bool { isWhole || byteCount > 0 }

    var json: JSON {
        .object([
            ("path", .text(path)), ("whole", .bool(isWhole)), ("error", error.map { .text($0) } ?? .null),
            ("lines", .integer(lineCount)), ("bytes", .integer(byteCount)),
            ("longest_line_bytes", .integer(longestLine)), ("invalid_utf8_lines", .integer(invalidLineCount)),
        ])
    }

    private static func sentence(for error: any Error) -> String {
        guard let error = error as? LineFramer.LineTooLong else { return "\(error)" }
        return "Line \(error.number) has more than \(error.limit) bytes"
    }
}
