import Glibc
import Synchronization

/// Output that was accepted but not sent when `write` or `close` returned. The process waits for it at exit,
/// for up to ``exitTimeout``.
///
/// Uses atexit(3): `exit` and a return from main wait, `_exit` and signals do not.
enum PendingOutput {
    /// How long the exit waits: enough for a slow peer, short enough for a person at a terminal.
    private static let exitTimeout: Duration = .seconds(5)

    private struct State {
        var count = 0
        /// The process that the count belongs to: a child of fork(2) does not send its parent's output.
        var process = ProcessIdentity.current
    }

    private static let state = Mutex(State())
    private static let changed = EventCount()
    private static let exiting = Atomic(false)
    /// The last process that had pending output. A child of fork(2) that had none must not take the locks,
    /// which a thread of its parent may have held.
    private static let owner = Atomic<UInt32>(0)

    /// Registers with atexit(3), once.
    private static let isRegistered: Bool = atexit { PendingOutput.waitAtExit() } == 0

    /// Whether the process is waiting to exit: then only written bytes are worth waiting for.
    static var isExiting: Bool { exiting.load(ordering: .relaxed) }

    static func begin() {
        _ = isRegistered
        owner.store(ProcessIdentity.current.forks, ordering: .relaxed)
        change(by: 1)
    }

    static func end() {
        change(by: -1)
        changed.broadcast()
    }

    private static func change(by difference: Int) {
        state.withLock { state in
            if !state.process.isCurrent { state = State() }
            state.count = max(0, state.count + difference)
        }
    }

    private static var count: Int { state.withLock { $0.process.isCurrent ? $0.count : 0 } }

    private static func waitAtExit() {
        guard owner.load(ordering: .relaxed) == ProcessIdentity.current.forks else { return }
        exiting.store(true, ordering: .relaxed)
        let deadline = Deadline.now.advanced(by: exitTimeout)
        if changed.wait(until: deadline, for: { count == 0 ? () : nil }) == nil { report(count) }
    }

    private static func report(_ left: Int) {
        let streams = left == 1 ? "1 stream" : "\(left) streams"
        LoopDiagnostics.report(
            .unsentBytes,
            "The process is exiting before \(streams) \(left == 1 ? "has" : "have") sent all that was written."
        )
    }
}
