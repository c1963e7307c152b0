import Glibc
import Reactor

/// Processes each line, or each part of a line, on the worker's queue. The worker owns the value while it reads a file;
/// the completion handler receives it on the loop's thread.
struct LineVisitor: Sendable {
    private let every: Int?
    private let makesStrings: Bool
    private let microsecondsOfSleep: UInt32
    private let printer: LinePrinter
    /// Whether the framer delivers long lines in parts.
    private let receivesParts: Bool
    private var validator = UTF8Validator()
    private var isInsideLine = false
    private var lastInvalidLine = 0

    /// The number of lines that are not valid UTF-8. Truncating a line within a character makes it invalid.
    private(set) var invalidLineCount = 0

    init(_ command: LineReaderCommand, _ printer: LinePrinter) {
        every = command.every
        makesStrings = command.strings
        microsecondsOfSleep = command.microsecondsOfSleep
        receivesParts = command.lineLimit == nil
        self.printer = printer
    }

    mutating func visit(_ bytes: RawSpan, _ line: LineFramer.Line) throws {
        let isLast = !receivesParts || line.ending != .continued
        if makesStrings {
            let text = try text(of: bytes, line)
            if isSelected(line) { try unsafe printer.print(text.utf8.span.bytes, number: line.number) }
        } else {
            if !line.isKnownUTF8, !validator.isValid(appending: bytes, isLast: isLast) { recordInvalid(line) }
            let number = isInsideLine ? nil : line.number
            if isSelected(line) { try printer.print(bytes, number: number, endsLine: isLast) }
        }
        isInsideLine = !isLast
        if isLast, microsecondsOfSleep > 0, line.number.isMultiple(of: 1000) { usleep(microsecondsOfSleep) }
    }

    private func isSelected(_ line: LineFramer.Line) -> Bool {
        guard let every else { return false }
        return line.number.isMultiple(of: every)
    }

    /// A valid line, the usual case, is validated only once.
    private mutating func text(of bytes: RawSpan, _ line: LineFramer.Line) throws -> String {
        do { return try line.text(bytes, .fail) } catch {
            recordInvalid(line)
            return try line.text(bytes, .repair)
        }
    }

    /// Counts a line once, even if several of its parts are invalid.
    private mutating func recordInvalid(_ line: LineFramer.Line) {
        if line.number != lastInvalidLine { invalidLineCount += 1 }
        lastInvalidLine = line.number
    }
}
