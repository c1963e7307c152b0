import Glibc
import Reactor
import SystemPackage

/// Standard output and standard error: lines, and below them, if standard error is a terminal, bars.
///
/// Both have a write buffer, so that a terminal that has been stopped (Ctrl-S) does not stop the loop.
@MainActor
final class Console {
    private static let bufferSize = 65_536

    private let output: OutputStream
    private let errors: OutputStream
    let isTerminal: Bool
    /// Follows https://no-color.org.
    private let isColored = unsafe getenv("NO_COLOR").map { unsafe $0.pointee == 0 } ?? true
    /// The widths of the bars that are on the screen.
    private var widths: [Int] = []

    init() {
        let terminal = unsafe getenv("TERM").map { unsafe String(cString: $0) } ?? "dumb"
        isTerminal = isatty(STDERR_FILENO) == 1 && terminal != "dumb"
        errors = Self.open(.standardError)
        // One stream for both, so that lines and bars keep their order.
        output = Self.isSameTerminal ? errors : Self.open(.standardOutput)
    }

    private static func open(_ descriptor: FileDescriptor) -> OutputStream {
        let stream = OutputStream(descriptor: descriptor)
        stream.open()
        stream.writeBufferSize = bufferSize
        stream.schedule(in: .main, forMode: .common)
        return stream
    }

    private static var isSameTerminal: Bool {
        var (output, errors) = (stat(), stat())
        return unsafe isatty(STDOUT_FILENO) == 1 && fstat(STDOUT_FILENO, &output) == 0
            && fstat(STDERR_FILENO, &errors) == 0 && output.st_rdev == errors.st_rdev
    }

    // MARK: Lines

    func printLine(_ line: String) { write(line, to: output) }

    func printError(_ message: String) { write("downloader: \(message)", to: errors) }

    private func write(_ line: String, to stream: OutputStream) {
        eraseBars()
        writeAll(line + "\n", to: stream)
    }

    /// Waits for room if the buffer is full.
    private func writeAll(_ text: String, to stream: OutputStream) {
        var rest = Array(text.utf8)[...]
        while true {
            rest = rest.dropFirst(stream.write(Array(rest)))
            guard !rest.isEmpty, (try? stream.flushAndWait()) != nil else { return }
        }
    }

    /// Waits until all lines are written, and returns the error if that fails.
    ///
    /// A closed pipe is not an error: its reader has what it needs.
    func finish() -> (any Error)? {
        do { try output.flushAndWait() } catch {
            return (error as? IOError)?.errno == .brokenPipe ? nil : error
        }
        return nil
    }

    // MARK: Bars

    /// Replaces the bars on the screen, unless the terminal accepts no bytes.
    func showBars(_ bars: [Bar]) {
        guard isTerminal, errors.hasSpaceAvailable else { return }
        let size = Self.size
        // The last line is for the cursor, and the last column too: some terminals wrap lines that use it.
        let (rows, columns) = (max(size.rows - 1, 1), max(size.columns - 1, 1))
        let shown = bars.suffix(rows)
        // In one write, so that the bars do not flicker.
        _ = errors.write(
            erasure() + shown.map { $0.line(columns: columns, isColored: isColored) + "\n" }.joined())
        widths = shown.map { _ in columns }
    }

    private func eraseBars() { _ = errors.write(erasure()) }

    /// What erases the bars on the screen.
    private func erasure() -> String {
        guard !widths.isEmpty else { return "" }
        // A terminal that has become narrower has wrapped them.
        let columns = max(Self.size.columns, 1)
        let rows = widths.reduce(0) { $0 + max(1, ($1 + columns - 1) / columns) }
        widths = []
        return "\r\u{1B}[\(rows)A\u{1B}[J"
    }

    private static var size: (columns: Int, rows: Int) {
        var size = winsize()
        guard unsafe ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0
        else {
            return (80, 24)
        }
        return (Int(size.ws_col), Int(size.ws_row))
    }
}
