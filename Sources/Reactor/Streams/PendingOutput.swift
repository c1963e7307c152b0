import CReactorLinux
import Glibc
import Synchronization

/// What streams have accepted and have not sent yet, although `write` or `close` has returned: the process waits for it
/// before it exits, for a bounded time.
///
/// It stands on atexit(3), so it holds for `exit` and a return from main, and not for `_exit` or a signal.
enum PendingOutput {
    /// How long the exit waits: enough for a slow peer, short enough for a person at a terminal.
    private static let exitPatience: Duration = .seconds(5)

    private static let count = Atomic(0)
    private static let changed = Condition()
    private static let exiting = Atomic(false)
    private static let forks = Fork.count

    /// Registers with atexit(3), once.
    private static let isRegistered: Bool = {
        _ = forks
        return atexit { PendingOutput.waitAtExit() } == 0
    }()

    /// Whether the process waits to exit, so that nothing need be waited for beyond what was written.
    static var isExiting: Bool { exiting.load(ordering: .relaxed) }

    static func begin() {
        _ = isRegistered
        count.add(1, ordering: .relaxed)
    }

    static func end() {
        count.subtract(1, ordering: .releasing)
        if isExiting { changed.announce() }
    }

    private static func waitAtExit() {
        // A child of fork(2) has the count, but not the thread that would send.
        guard forks == Fork.count else { return }
        exiting.store(true, ordering: .sequentiallyConsistent)
        let deadline = Deadline.now.advanced(by: exitPatience)
        while true {
            let generation = changed.generation
            let left = count.load(ordering: .acquiring)
            if left == 0 { return }
            guard changed.wait(after: generation, until: deadline) else { return report(left) }
        }
    }

    private static func report(_ left: Int) {
        let streams = left == 1 ? "1 stream" : "\(left) streams"
        let text = "Reactor: the process exits before \(streams) had sent all that was written\n"
        _ = unsafe Array(text.utf8).withUnsafeBytes { bytes in
            unsafe reactor_write(STDERR_FILENO, bytes.baseAddress, bytes.count)
        }
    }
}
