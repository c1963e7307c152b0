import ExampleSupport
import Reactor

/// The results of one file.
struct FileTotals {
    let path: String
    /// Whether the file was read to its end.
    private(set) var isWhole = false
    /// The message of the error that ended reading, if any.
    private(set) var error: String?
    private(set) var lineCount = 0
    private(set) var byteCount = 0
    private(set) var longestLine = 0
    private(set) var invalidLineCount = 0

    /// Creates the results of a file that was skipped.
    init(path: String) { self.path = path }

    /// Creates the results from the report on a file, which may have been read only in part.
    init(path: String, _ report: HandoffReport<LineOutput<LineVisitor>>) {
        self.path = path
        switch report.ending {
        case .finished: isWhole = true
        case .failed(let error): self.error = Self.message(for: error)
        case .stopped, .cancelled: break
        }
        lineCount = report.output.lineCount
        byteCount = report.output.byteCount
        longestLine = report.output.longestLine
        invalidLineCount = report.output.value.invalidLineCount
    }

    /// Whether any of the file was read, or the file is empty.
    var wasStarted: Bool { isWhole || byteCount > 0 }

    var json: JSON {
        .object([
            ("path", .text(path)), ("whole", .bool(isWhole)), ("error", error.map { .text($0) } ?? .null),
            ("lines", .integer(lineCount)), ("bytes", .integer(byteCount)),
            ("longest_line_bytes", .integer(longestLine)), ("invalid_utf8_lines", .integer(invalidLineCount)),
        ])
    }

    private static func message(for error: any Error) -> String {
        // The message already names the file.
        if let error = error as? IOError { return "\(error.reason)" }
        guard let error = error as? LineFramer.LineTooLong else { return "\(error)" }
        return "Line \(error.number) has more than \(error.limit) bytes"
    }
}
