import Glibc
import Synchronization

/// What has to be served on a run loop.
protocol Watched: AnyObject, Sendable {
    /// The mistake that keeps it from being served, if there seems to be one. From any thread.
    var complaint: Complaint? { get }
}

/// A mistake that is reported if it lasts.
struct Complaint: Sendable {
    let report: LoopDiagnostics.Report
    /// Another one than before if something has happened meanwhile: the mistake has not lasted then.
    let occasion: String

    init(_ kind: LoopDiagnostics.Report.Kind, _ text: String, occasion: String = "") {
        (report, self.occasion) = (LoopDiagnostics.Report(kind: kind, text: text), occasion)
    }
}

/// In debug mode, reports what has not been served for a second because of what looks like a mistake: a program that hangs
/// does not reach its end, where loops report what they leave.
enum Watchdog {
    private struct Entry: Sendable {
        weak var item: (any Watched)?
        /// Since when each look has found the same to complain of.
        var suspicion: (since: Deadline, occasion: String)?
    }

    /// What has to be watched since the last look. Only this is locked: a loop does not wait for a look at many items.
    private static let recent = Mutex<[Entry]>([])
    /// A child of fork(2) has no such thread, and its copy of the lock may be held for good.
    private static let process = ProcessIdentity.current
    private static let thread: JoinableThread? = try? JoinableThread(name: "reactor.debug") {
        var entries: [ObjectIdentifier: Entry] = [:]
        while true {
            _ = sleep(1)
            for entry in recent.withLock({ exchange(&$0, with: []) }) {
                if let item = entry.item { entries[ObjectIdentifier(item)] = entry }
            }
            for key in Array(entries.keys) { look(at: &entries[key]) }
        }
    }

    /// How long a mistake must last: longer than a healthy loop takes, and short for a person who waits.
    static var patience: Duration { .seconds(1) }

    /// Watches `item`, which this does not retain, until it has been reported.
    @inline(never)
    static func watch(_ item: any Watched) {
        guard process.isCurrent else { return }
        _ = thread
        recent.withLock { $0.append(Entry(item: item)) }
    }

    /// Forgets an item that has ended or been reported. One whose last reference is held here ends with nothing locked: its
    /// end may call the client.
    private static func look(at entry: inout Entry?) {
        guard let item = entry?.item else {
            entry = nil
            return
        }
        guard LoopDiagnostics.isReporting, let complaint = item.complaint else {
            entry?.suspicion = nil
            return
        }
        guard let suspicion = entry?.suspicion, suspicion.occasion == complaint.occasion else {
            entry?.suspicion = (.now, complaint.occasion)
            return
        }
        guard suspicion.since.duration(to: .now) >= patience else { return }
        entry = nil
        LoopDiagnostics.report(complaint.report)
    }
}
