import CReactorLinux
import Synchronization

/// Reports what looks like a mistake in a program, and switches on what loops measure of their callbacks.
///
/// With `REACTOR_DEBUG=1` in the environment, or ``isDebugging`` set, the library reports likely mistakes on standard error,
/// each in a sentence. Items are named by their labels. Timers, sources, observers, descriptor sources and posted blocks are
/// also named by the file and the line that made them, unless that was in Cocoa's spelling.
///
/// ```swift
/// LoopDiagnostics.isDebugging = true
/// LoopDiagnostics.setReportHandler { report in print("event loop:", report.text) }
/// ```
///
/// Any thread may use all of it. While it is off, a callback costs one test of a flag more.
public enum LoopDiagnostics {
    /// What looks like a mistake.
    public struct Report: Sendable, Hashable, CustomStringConvertible {
        /// What kind of mistake it is, such as `slowCallback`, for a filter or a metric: see <doc:Diagnostics>.
        public let kind: String
        /// What has happened, and what to do, in a sentence or two. The wording may change.
        public let text: String

        /// The same as ``text``.
        public var description: String { text }
    }

    /// The raw values are those of ``Report/kind``.
    enum Kind: String {
        /// A callback kept its loop from serving anything else for longer than ``slowCallback``. Runs of
        /// the loop within the callback do not count.
        case slowCallback
        /// A callback has run for longer than ``slowCallback`` and has not returned. Reported again at ten
        /// times the limit; its return is reported as `slowCallback`.
        case blockedLoop
        /// The loop of a thread of Dispatch's or Swift's pool was used, which that thread does not run.
        case runLoopOnPoolThread
        /// The last reference to a scheduled stream was released, which has closed it, before it had delivered an event.
        case releasedStream
        /// A scheduled stream was not open for more than a second, had bytes, an end or an error for so long and no
        /// delegate, or has a delegate that does not implement ``StreamDelegate/stream(_:handle:)``. Or an open stream
        /// had a delegate for so long, had never been used, and was scheduled nowhere. Or a child process waited for so
        /// long because the pipe of its output was full, and no code had begun to read that.
        case silentStream
        /// Items were due or ready for more than a second in modes that had never run; or a loop ended that had not
        /// served them, or was never run at all.
        case unservedItems
        /// A loop's thread ended before its tasks. A library thread runs their remaining jobs.
        case lateJob
        /// The task that served a connection of ``Listener/Connections/run(security:limit:limitPerPeer:connectionErrors:_:)``
        /// has thrown an error.
        case connectionError
        /// A listener cannot accept connections for now, for example because the process has no more descriptors.
        case acceptError
        /// The process exits before accepted bytes of streams have been sent. Reported without debug mode, too.
        case unsentBytes
    }

    private typealias ReportHandler = @Sendable (Report) -> Void

    /// Boxed for the same reason as a ``Callback``.
    private struct Settings {
        /// Nil for standard error.
        var handler: ReportHandler?
    }

    private static let settings = Mutex(Settings())
    /// In nanoseconds. Read after each callback of every loop.
    private static let slowest = Atomic<Int64>(100_000_000)

    // MARK: The switches

    /// Whether mistakes are reported. Debugging includes measuring. Items that were made before it was set have no place.
    public static var isDebugging: Bool {
        get { isReporting }
        set { reactor_set_diagnostics(2, newValue) }
    }

    /// Whether loops measure their callbacks, for ``RunLoop/Statistics/ledger`` and ``RunLoop/explain()``: two readings of
    /// the clock for each callback, two locks, and its name. True while ``isDebugging`` is.
    public static var measuresCallbacks: Bool {
        get { isMeasuring }
        set { reactor_set_diagnostics(1, newValue) }
    }

    /// How long a callback may take before it is reported: 100 ms unless set. A debug thread samples callbacks at
    /// half this interval, clamped to 10 ms … 1 s.
    public static var slowCallback: Duration {
        get { .nanoseconds(slowest.load(ordering: .relaxed)) }
        set { slowest.store(newValue.wholeNanoseconds, ordering: .relaxed) }
    }

    /// Gives the reports to `handler` instead of standard error; with nil, to standard error again.
    ///
    /// - Parameter handler: Called on the thread that has found the mistake.
    public static func setReportHandler(_ handler: (@Sendable (Report) -> Void)?) {
        let former = settings.withLock { exchange(&$0.handler, with: handler) }
        withExtendedLifetime(former) {}
    }

    // MARK: For the library

    /// As ``isDebugging``.
    static var isReporting: Bool { reactor_diagnostics_switches() & 2 != 0 }

    /// Whether any switch is on, or a test has replaced the time of some threads.
    static var isAnyOn: Bool { reactor_diagnostics_switches() != 0 }

    /// Whether mistakes are reported, or a test has replaced the time of some threads.
    static var notesWaits: Bool { reactor_diagnostics_switches() & 6 != 0 }

    /// As ``measuresCallbacks``.
    static var isMeasuring: Bool { reactor_diagnostics_switches() & 3 != 0 }

    /// Reports a mistake. Called with nothing locked.
    static func report(_ kind: Kind, _ text: String) { report(Report(kind: kind.rawValue, text: text)) }

    /// Reports that a listener backs off, which its owner may have no closure for.
    static func report(acceptError error: String) {
        guard isReporting else { return }
        report(.acceptError, "A listener accepts no connections for now, and tries again: \(error)")
    }

    static func report(_ report: Report) {
        if let handler = settings.withLock({ $0.handler }) {
            handler(report)
        } else {
            SystemCall.writeToStandardError("Reactor: \(report.text)\n")
        }
    }
}
