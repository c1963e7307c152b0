import Glibc
import Synchronization

/// What has to be served on a run loop.
protocol Watched: AnyObject, Sendable {
    /// What is due or ready in modes that have never run, as a sentence; nil for nothing. From any thread.
    var complaint: String? { get }
}

/// In debug mode, reports what has been due or ready for a second in modes that have never run: a program that hangs does
/// not reach its end, where loops report what they leave.
enum Watchdog {
    private struct Entry: Sendable {
        weak var item: (any Watched)?
        /// Whether the last look has found something to complain of.
        var isSuspect = false
    }

    private static let entries = Mutex<[ObjectIdentifier: Entry]>([:])
    /// A child of fork(2) has no such thread, and its copy of the lock may be held for good.
    private static let process = ProcessIdentity.current
    private static let thread: JoinableThread? = try? JoinableThread(name: "reactor.debug") {
        while true {
            _ = sleep(interval)
            if LoopDiagnostics.isReporting { look() }
        }
    }

    /// In seconds. What is found twice has been ready for at least as long: longer than a healthy loop takes, and short for
    /// a person who waits.
    private static var interval: UInt32 { 1 }

    /// Watches `item`, which this does not retain, until it has been reported.
    @inline(never)
    static func watch(_ item: any Watched) {
        guard process.isCurrent else { return }
        _ = thread
        let key = ObjectIdentifier(item)
        entries.withLock { if $0[key]?.item !== item { $0[key] = Entry(item: item) } }
    }

    private static func look() {
        for (key, entry) in entries.withLock({ $0 }) {
            let complaint = entry.item?.complaint
            let isDone = entry.item == nil || entry.isSuspect && complaint != nil
            entries.withLock { entries in
                guard entries[key]?.item === entry.item else { return }
                if isDone { entries[key] = nil } else { entries[key]?.isSuspect = complaint != nil }
            }
            if isDone, let complaint { LoopDiagnostics.report(.unservedItems, complaint) }
        }
    }
}

extension RunLoop: Watched {
    var complaint: String? {
        guard !inbox.isClosed else { return nil }
        let counts = inbox.waitingCounts.filter { inbox.neverRan(in: Membership($0.mode)) }
        guard !counts.isEmpty else { return nil }
        let blocks = counts.map { "\(countedBlocks($0.count)) in \($0.mode.shortName)" }
        let reason =
            inbox.hasRun ? "which has never run" : "and has never run: call run(in:until:) on its thread"
        return "The \(name) has \(blocks.joined(separator: ", ")), \(reason)."
    }
}

extension Timer: Watched {
    var complaint: String? {
        let (isWaiting, due, loop, membership) = state.withLock { state in
            let isOwn = state.name?.isInternal == true
            return (state.isValid && !state.isFiring && !isOwn, state.due, state.loop, state.membership)
        }
        let overdue = Deadline(uptimeNanoseconds: due).duration(to: .now)
        guard isWaiting, overdue > .zero, let reason = loop?.inbox.reasonForNeverRunning(membership) else {
            return nil
        }
        return "The \(title) has been due for \(overdue.rounded): \(reason)."
    }
}

extension RunLoop.Source: Watched {
    var complaint: String? {
        guard isSignalled else { return nil }
        let loops = memberships
        let reasons = loops.compactMap { $0.inbox.reasonForNeverRunning($1) }
        guard !loops.isEmpty, reasons.count == loops.count else { return nil }
        return "The \(title) is signalled: \(reasons.joined(separator: "; "))."
    }
}

extension Inbox {
    /// Whether the loop has ever run.
    var hasRun: Bool { modeRecords.withLock { $0.contains { $0.hasRun } } }

    /// Whether the loop has run in none of the modes of `membership`.
    func neverRan(in membership: Membership) -> Bool {
        let common = commonModes
        return modeRecords.withLock { records in
            !records.contains { record in
                record.hasRun
                    && (membership.contains(record.mode, common: common)
                        || membership.isCommon && common.contains(record.mode))
            }
        }
    }

    /// Why an item in the modes of `membership` has never been served, as a clause; nil if one of them has run.
    func reasonForNeverRunning(_ membership: Membership) -> String? {
        guard !isClosed, neverRan(in: membership) else { return nil }
        guard hasRun else { return "the \(loopName) has never run: call run(in:until:) on its thread" }
        return "it is only in \(membership.shortNames), which has never run"
    }
}
