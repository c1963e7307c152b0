import Glibc
import Synchronization

/// What has to be served on a run loop.
protocol Supervised: AnyObject, Sendable {
    /// The mistake that keeps it from being served, if there seems to be one. From any thread.
    var complaint: Complaint? { get }
}

/// A mistake that is reported if it lasts.
struct Complaint: Sendable {
    let report: LoopDiagnostics.Report
    /// Another one than before if something has happened meanwhile: the mistake has not lasted then.
    let occasion: String

    init(_ kind: LoopDiagnostics.Kind, _ text: String, occasion: String = "") {
        (report, self.occasion) = (LoopDiagnostics.Report(kind: kind.rawValue, text: text), occasion)
    }
}

/// In debug mode, reports callbacks that do not return, and what has not been served for a second because of what looks like a
/// mistake: a program that hangs does not reach its end, where loops report what they leave.
enum Watchdog {
    private struct Entry: Sendable {
        weak var item: (any Supervised)?
        /// Since when each look has found the same to complain of.
        var suspicion: (since: Deadline, occasion: String)?
    }

    private struct Meter: Sendable {
        weak var meter: LoopMeter?
    }

    /// What has been added since the last look. Only this is locked: a loop does not wait for a look at many items.
    private static let recent = Mutex<([Entry], [Meter])>(([], []))
    private static let pauses = Mutex(ProcessPauses())
    /// A child of fork(2) has no such thread, and its copy of the locks may be held forever.
    private static let process = ProcessIdentity.current
    private static let thread: JoinableThread? = try? JoinableThread(name: "reactor.debug") {
        var entries: [ObjectIdentifier: Entry] = [:]
        var meters: [Meter] = []
        var lastLook = Deadline.now
        while true {
            rest()
            let (newEntries, newMeters) = recent.withLock { exchange(&$0, with: ([], [])) }
            meters += newMeters
            for entry in newEntries {
                if let item = entry.item { entries[ObjectIdentifier(item)] = entry }
            }
            meters.removeAll { $0.meter == nil }
            if LoopDiagnostics.isReporting { for entry in meters { entry.meter?.reportBlockage() } }
            guard lastLook.duration(to: .now) >= reportDelay else { continue }
            for key in Array(entries.keys) { look(at: &entries[key]) }
            lastLook = .now
        }
    }

    /// How long a mistake must last: longer than a healthy loop takes, and short for a person who waits.
    static var reportDelay: Duration { .seconds(1) }

    /// Sleeps until the next look at the callbacks, and notes whether that has taken much longer.
    private static func rest() {
        let half = LoopDiagnostics.slowCallback / 2
        let interval = min(max(half, shortestInterval), reportDelay).wholeNanoseconds
        let now = Deadline.now.uptimeNanoseconds
        pauses.withLock { $0.beginSleep(now..<now + interval) }
        _ = usleep(useconds_t(interval / 1000))
        pauses.withLock { $0.endSleep(at: Deadline.now.uptimeNanoseconds) }
    }

    /// Keeps the thread's own cost negligible.
    private static var shortestInterval: Duration { .milliseconds(10) }

    /// How many nanoseconds of an interval the process is known to have been paused.
    static func pauses(from start: Int64, to end: Int64) -> Int64 {
        process.isCurrent ? pauses.withLock { $0.time(from: start, to: end) } : 0
    }

    /// Supervises `item`, which this does not retain, until it has been reported.
    static func supervise(_ item: any Supervised) {
        guard process.isCurrent else { return }
        _ = thread
        recent.withLock { $0.0.append(Entry(item: item)) }
    }

    /// Supervises the callbacks of a loop for as long as that exists.
    static func superviseCalls(of meter: LoopMeter) {
        guard process.isCurrent else { return }
        _ = thread
        recent.withLock { $0.1.append(Meter(meter: meter)) }
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
        let (start, now) = (suspicion.since.uptimeNanoseconds, Deadline.now.uptimeNanoseconds)
        guard .nanoseconds(now - start - pauses(from: start, to: now)) >= reportDelay else { return }
        entry = nil
        LoopDiagnostics.report(complaint.report)
    }
}

/// Intervals in which the process was stopped or starved, inferred from a thread that overslept. When in the thread's sleep
/// that began is not known, so all of the sleep counts. Pure: the times are nanoseconds of one clock.
struct ProcessPauses {
    /// In order, the latest last.
    private var recent: [Range<Int64>] = []
    /// From when until when the thread is to sleep; nil while it is awake.
    private var sleep: Range<Int64>?

    /// Longer than normal scheduling delay, too short to make a fast callback look slow.
    static var shortest: Int64 { 50_000_000 }

    /// A callback may last for hours, but a process is not stopped often.
    static var mostPauses: Int { 100 }

    mutating func beginSleep(_ sleep: Range<Int64>) { self.sleep = sleep }

    mutating func endSleep(at now: Int64) {
        if let pause = currentPause(at: now) { recent.append(pause) }
        if recent.count > Self.mostPauses { recent.removeFirst() }
        sleep = nil
    }

    /// How much of an interval up to now the process did not run.
    func time(from start: Int64, to now: Int64) -> Int64 {
        let pauses = currentPause(at: now).map { recent + [$0] } ?? recent
        return pauses.reduce(0) { $0 + max(0, $1.upperBound - max($1.lowerBound, start)) }
    }

    /// The pause that the thread has not seen the end of.
    private func currentPause(at now: Int64) -> Range<Int64>? {
        guard let sleep, now - sleep.upperBound > Self.shortest else { return nil }
        return sleep.lowerBound..<now
    }
}
