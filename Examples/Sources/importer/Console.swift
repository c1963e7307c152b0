import ExampleSupport
import Foundation
import Glibc
import Reactor

/// Writes messages and, if it is a terminal, a progress bar to standard error. Any thread may use it.
final class Console: Sendable {
    private struct State {
        /// Not scheduled on a loop, so its writes block.
        let stream = OutputStream(descriptor: .standardError)
        var isBarVisible = false
    }

    private let state: Mutex<State>
    private let showsBar = isatty(STDERR_FILENO) == 1

    init() {
        let initial = State()
        initial.stream.open()
        state = Mutex(initial)
    }

    func printError(_ message: String) {
        state.withLock { state in
            _ = state.stream.write("\(state.isBarVisible ? Self.clearLine : "")importer: \(message)\n")
            state.isBarVisible = false
        }
    }

    /// Shows the progress. Skips this if the worker is writing or the terminal accepts nothing, because the
    /// loop must not wait.
    func show(_ progress: Progress) {
        guard showsBar else { return }
        _ = state.withLockIfAvailable { state in
            guard state.stream.hasSpaceAvailable else { return }
            _ = state.stream.write(Self.bar(progress) + Self.clearLineEnd)
            state.isBarVisible = true
        }
    }

    func clearBar() {
        state.withLock { state in
            if state.isBarVisible { _ = state.stream.write(Self.clearLine) }
            state.isBarVisible = false
        }
    }

    private static func bar(_ progress: Progress) -> String {
        if progress.isIndeterminate { return "\r\(progress.completedUnitCount / 1_000_000) MB" }
        let percent = Int(progress.fractionCompleted * 100)
        let bar = String(repeating: "#", count: percent / 5).padding(
            toLength: 20, withPad: "-", startingAt: 0)
        return "\r[\(bar)] \(percent) %"
    }

    private static let clearLineEnd = "\u{1B}[K"
    private static let clearLine = "\r\u{1B}[K"
}
