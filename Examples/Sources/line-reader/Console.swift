import Glibc
import Reactor
import SystemPackage

/// Writes error messages to standard error and, if that is a terminal, a progress bar.
final class Console {
    private let stream = OutputStream(descriptor: .standardError)
    private let showsBar = isatty(STDERR_FILENO) == 1
    private var isBarVisible = false
    /// The earliest time of the next update.
    private var nextUpdate = Deadline.distantPast

    init() { stream.open() }

    /// Updates the progress bar, at most ten times a second.
    func show(_ progress: HandoffProgress, of file: String) {
        guard showsBar, nextUpdate <= .now, stream.hasSpaceAvailable else { return }
        nextUpdate = .now.advanced(by: .milliseconds(100))
        isBarVisible = true
        let name = FilePath(file).lastComponent?.string.prefix(Self.maximumNameLength) ?? ""
        write("\r\(bar(progress)) \(name)\u{1B}[K")
    }

    /// A bar of twenty characters and the percentage, or the number of bytes if the size is unknown.
    private func bar(_ progress: HandoffProgress) -> String {
        guard let expected = progress.expectedByteCount, expected > 0 else {
            return "\(progress.byteCount.inMegabytes) MB"
        }
        let percent = min(100, progress.byteCount * 100 / expected)
        let filled = percent / 5
        let bar = String(repeating: "#", count: filled) + String(repeating: "-", count: 20 - filled)
        return "[\(bar)] \(percent) %"
    }

    /// With the bar, this fits into a terminal of 80 columns.
    private static let maximumNameLength = 40

    /// Removes the progress bar.
    func clear() {
        if isBarVisible { write("\r\u{1B}[K") }
        isBarVisible = false
        nextUpdate = .distantPast
    }

    func printError(_ message: String) { write("line-reader: \(message)\n") }

    private func write(_ text: String) { _ = stream.write(text) }
}

extension Int {
    /// The number of bytes in megabytes, with one decimal.
    var inMegabytes: String { "\(self / 1_000_000).\(self / 100_000 % 10)" }
}
