import Glibc
import Synchronization

/// What has to be served on a run loop.
protocol Watched: AnyObject, Sendable {
    /// The mistake that keeps it from being served, if there seems to be one. From any thread.
    var complaint: LoopDiagnostics.Report? { get }
}

/// In debug mode, reports what has not been served for a second because of what looks like a mistake: a program that hangs
/// does not reach its end, where loops report what they leave.
enum Watchdog {
    private struct Entry: Sendable {
        weak var item: (any Watched)?
        /// Another object may have the same key later.
        let sequence: UInt64
        /// Since when each look has found something to complain of.
        var suspectSince: Deadline?
    }

    private struct Entries: Sendable {
        var all: [ObjectIdentifier: Entry] = [:]
        var lastSequence: UInt64 = 0
    }

    private static let entries = Mutex(Entries())
    /// A child of fork(2) has no such thread, and its copy of the lock may be held for good.
    private static let process = ProcessIdentity.current
    private static let thread: JoinableThread? = try? JoinableThread(name: "reactor.debug") {
        while true {
            _ = sleep(1)
            if LoopDiagnostics.isReporting { look() }
        }
    }

    /// How long there must be something to complain of: longer than a healthy loop takes, and short for a person who waits.
    static var patience: Duration { .seconds(1) }

    /// Watches `item`, which this does not retain, until it has been reported.
    @inline(never)
    static func watch(_ item: any Watched) {
        guard process.isCurrent else { return }
        _ = thread
        let key = ObjectIdentifier(item)
        entries.withLock { entries in
            if entries.all[key]?.item === item { return }
            entries.lastSequence += 1
            entries.all[key] = Entry(item: item, sequence: entries.lastSequence)
        }
    }

    /// An item whose last reference is held here ends with nothing locked: its end may call the client.
    private static func look() {
        for (key, entry) in entries.withLock({ $0.all }) {
            let item = entry.item
            let complaint = item?.complaint
            let since = complaint == nil ? nil : entry.suspectSince ?? .now
            let isDone = item == nil || since.map { $0.duration(to: .now) >= patience } ?? false
            entries.withLock { entries in
                guard entries.all[key]?.sequence == entry.sequence else { return }
                if isDone { entries.all[key] = nil } else { entries.all[key]?.suspectSince = since }
            }
            if isDone, let complaint { LoopDiagnostics.report(complaint) }
            withExtendedLifetime(item) {}
        }
    }
}
