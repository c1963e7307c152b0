import Glibc
import Reactor

/// What the worker does with each line, or with each piece of a line of any length. A plain value: while a file is read the worker has it to itself, and
/// in the end it comes back to the loop.
struct LineVisitor: Sendable {
    private let every: Int?
    private let makesStrings: Bool
    private let microsecondsOfSleep: UInt32
    private let printer: LinePrinter
    /// Whether a line may come in pieces, which are parts of it and no lines of their own.
    private let joinsPieces: Bool
    private var text = PieceText()
    private var isInsideLine = false
    private var lastInvalidLine = 0

    /// The lines that are not UTF-8. A line that is cut may become one of them, if it is cut in a character.
    private(set) var invalidLineCount = 0

    init(_ command: LineReaderCommand, _ printer: LinePrinter) {
        every = command.every
        makesStrings = command.strings
        microsecondsOfSleep = command.microsecondsOfSleep
        joinsPieces = command.lineLimit == nil
        self.printer = printer
    }

    mutating func visit(_ bytes: RawSpan, _ line: LineFramer.Line) throws {
        let isLast = !joinsPieces || line.ending != .continued
        if makesStrings {
            let text = try text(of: bytes, line)
            if isWanted(line) { try unsafe printer.print(text.utf8.span.bytes, number: line.number) }
        } else {
            if !line.isKnownUTF8, !text.isValid(with: bytes, isLast: isLast) { noteInvalid(line) }
            let number = isInsideLine ? nil : line.number
            if isWanted(line) { try printer.print(bytes, number: number, endsLine: isLast) }
        }
        isInsideLine = !isLast
        if isLast, microsecondsOfSleep > 0, line.number.isMultiple(of: 1000) { usleep(microsecondsOfSleep) }
    }

    private func isWanted(_ line: LineFramer.Line) -> Bool {
        guard let every else { return false }
        return line.number.isMultiple(of: every)
    }

    /// Asked to report what is not UTF-8, a valid line is looked at only once.
    private mutating func text(of bytes: RawSpan, _ line: LineFramer.Line) throws -> String {
        do { return try line.text(bytes, .report) } catch {
            noteInvalid(line)
            return try line.text(bytes, .repair)
        }
    }

    /// The pieces of a line that was split count once.
    private mutating func noteInvalid(_ line: LineFramer.Line) {
        if line.number != lastInvalidLine { invalidLineCount += 1 }
        lastInvalidLine = line.number
    }
}
