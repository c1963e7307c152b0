import Glibc
import Reactor
import SystemPackage

/// Standard error: a progress bar if it is a terminal, and sentences on what went wrong.
final class Console {
    private let stream = OutputStream(descriptor: .standardError)
    private let hasBar = isatty(STDERR_FILENO) == 1
    private var isShowing = false
    private var nextTime = Deadline.distantPast

    init() { stream.open() }

    /// Shows how far the reading of a file has come, ten times a second at most.
    func show(_ progress: HandoffProgress, of file: String) {
        guard hasBar, nextTime <= .now, stream.hasSpaceAvailable else { return }
        nextTime = .now.advanced(by: .milliseconds(100))
        isShowing = true
        let name = FilePath(file).lastComponent?.string.prefix(Self.greatestNameLength) ?? ""
        write("\r\(bar(progress)) \(name)\u{1B}[K")
    }

    /// A bar of twenty characters and the percentage, or else how many bytes there were.
    private func bar(_ progress: HandoffProgress) -> String {
        guard let expected = progress.expectedByteCount, expected > 0 else {
            return "\(progress.byteCount.inMegabytes) MB"
        }
        let percent = min(100, progress.byteCount * 100 / expected)
        let filled = percent / 5
        let bar = String(repeating: "#", count: filled) + String(repeating: "-", count: 20 - filled)
        return "[\(bar)] \(percent) %"
    }

    /// What of a name fits in a narrow terminal, beside the bar.
    private static let greatestNameLength = 40

    /// Takes the progress bar away.
    func clear() {
        if isShowing { write("\r\u{1B}[K") }
        isShowing = false
        nextTime = .distantPast
    }

    /// Says what went wrong.
    func complain(_ sentence: String) { write("line-reader: \(sentence)\n") }

    private func write(_ text: String) { stream.write(Array(text.utf8)) }
}

extension Int {
    /// This many bytes in megabytes, with one decimal.
    var inMegabytes: String { "\(self / 1_000_000).\(self / 100_000 % 10)" }
}
