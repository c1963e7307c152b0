import CReactorLinux
import Glibc

// What a loop reports in debug mode: what it leaves undone, and that nothing runs it.

extension RunLoop.Core {
    /// Reports what has not been done when the loop ends.
    func reportLeftovers() {
        drainInbox()
        if inbox.isIdleOnPoolThread { return }
        let leftovers = knownStates.compactMap(describeLeftovers) + leftBlocks
        guard !leftovers.isEmpty else { return }
        let remedy =
            meter.passes.value == 0
            ? " without having run: call run(in:until:) on its thread, after something has been added" : ""
        LoopDiagnostics.report(
            .unservedItems,
            "The \(inbox.loopName) has ended\(remedy). It has not served \(leftovers.joined(separator: "; "))."
        )
    }

    /// What a mode leaves: everything if none of an item's modes has run, else what is due or ready and would have been
    /// done only once.
    private func describeLeftovers(of state: ModeState) -> String? {
        // The process exits within a pass, which would have served the rest.
        if inbox.runningModes.contains(state.mode) { return nil }
        let (mode, hasRun) = (state.mode, inbox.modesThatRan.contains(state.mode))
        let timers = state.timers.elements.filter { isLeft($0, in: mode, hasRun) }.map(\.title)
        let sources = state.sources.members.filter { source in
            reports(source.membership(in: loop), in: mode) && (!hasRun || source.isSignalled)
                && !isServedElsewhere(source)
        }.map(\.title)
        let events = state.eventSources.members.filter { source in
            (source !== mainQueue || hasMainQueueWork) && !hasRun && reports(source.membership, in: mode)
        }.map(\.title)
        let items = grouped(timers) + grouped(sources) + grouped(events)
        guard !items.isEmpty else { return nil }
        return "\(list(items)) in \(mode.shortName)\(hasRun ? "" : ", \(neverRun(ModeSet(mode)))")"
    }

    /// The blocks and executors that no pass will serve any more.
    private var leftBlocks: [String] {
        let (running, modesThatRan) = (inbox.runningModes, inbox.modesThatRan)
        return waitingCounts.filter { !$0.key.intersects(running) }.map { modes, count in
            describe(count, in: modes) + (modes.intersects(modesThatRan) ? "" : ", \(neverRun(modes))")
        }.sorted()
    }

    /// The titles in order, equal ones with their number.
    private func grouped(_ titles: [String]) -> [String] {
        Dictionary(titles.map { ($0, 1) }, uniquingKeysWith: +).sorted { $0.key < $1.key }.map {
            title, count in
            count == 1 ? title : "\(count) × \(title)"
        }
    }

    /// Whether another loop has run in a mode of a source that is in several.
    private func isServedElsewhere(_ source: RunLoop.Source) -> Bool {
        source.memberships.contains { $0.0 !== loop && !$0.0.inbox.neverRan(in: $0.1) }
    }

    /// Not a timer that is being called, whose closure may end the process, nor one that the library has made.
    private func isLeft(_ timer: Timer, in mode: RunLoop.Mode, _ hasRun: Bool) -> Bool {
        let (isOwn, isFiring, due, membership) = timer.state.withLock { timer in
            (timer.name?.isInternal == true, timer.isFiring, timer.due, timer.membership)
        }
        guard !isOwn, !isFiring, reports(membership, in: mode) else { return false }
        return !hasRun || timer.period == 0 && due <= Deadline.now.uptimeNanoseconds
    }

    /// Whether an item is reported for `mode`: the first of its modes that has run, or the first of all if none has.
    private func reports(_ membership: Membership, in mode: RunLoop.Mode) -> Bool {
        let (modes, modesThatRan) = (membership.entryModes(common: commonModes), inbox.modesThatRan)
        return mode == (modes.members.first { modesThatRan.contains($0) } ?? modes.members.first)
    }
}

extension RunLoop {
    /// Has the main thread's loop report in debug mode what it leaves: it does not end before the process does.
    static func reportAtExit() { _ = isReportingAtExit }

    private static let isReportingAtExit: Bool =
        atexit {
            guard LoopDiagnostics.isReporting, reactor_is_main_thread(), reactor_current_loop() != 0 else {
                return
            }
            let main = RunLoop.ofCallingThread
            if main.isMain, !main.inbox.belongsToParent { main.core.reportLeftovers() }
        } == 0

    /// Whether the debug mode is on, and the calling thread returns to a pool as soon as the code that uses its loop has
    /// returned.
    static var isOfReportedPoolThread: Bool { LoopDiagnostics.isReporting && reactor_is_on_pool_thread() }

    func reportPoolThread() {
        LoopDiagnostics.report(
            .runLoopOnPoolThread,
            "The run loop of \(currentThreadName), which belongs to Dispatch's or Swift's pool, was used: RunLoop.current was "
                + "called there, or a timer, a hand-off, a mailbox or a lookup was made. Nothing is called there unless that "
                + "code runs the loop: do it on the main actor, or on the loop of a RunLoopThread, or use the asynchronous "
                + "form.")
    }
}

// MARK: - What is never served

extension RunLoop: Supervised {
    var complaint: Complaint? {
        guard !inbox.isClosed, !inbox.isIdleOnPoolThread else { return nil }
        let known = inbox.knownWork
        let count = known.counts.values.reduce(known.otherCount, +)
        // Without need no question: it would wake a loop that sleeps, and serve a signal that has not.
        guard count > 0 else { return nil }
        guard inbox.hasRun else {
            let reason = "and has never run: call run(in:until:) on its thread"
            return Complaint(.unservedItems, "The \(name) has \(countedBlocks(count)), \(reason).")
        }
        let modesThatRan = inbox.modesThatRan
        let counts = (ask { $0.waitingWork } ?? known).counts.filter { !$0.key.intersects(modesThatRan) }
        guard !counts.isEmpty else { return nil }
        let blocks = counts.map { modes, count in describe(count, in: modes) }.sorted()
        let reason = neverRun(ModeSet(counts.keys.flatMap(\.members)))
        return Complaint(.unservedItems, "The \(name) has \(list(blocks)), \(reason).")
    }
}

extension Timer: Supervised {
    var complaint: Complaint? {
        let (isWaiting, due, loop, membership) = state.withLock { state in
            let isOwn = state.name?.isInternal == true
            return (state.isValid && !state.isFiring && !isOwn, state.due, state.loop, state.membership)
        }
        let overdue = Deadline(uptimeNanoseconds: due).duration(to: .now)
        guard isWaiting, overdue > .zero,
            let reason = loop?.inbox.reasonForNeverRunning(membership)
        else {
            return nil
        }
        return Complaint(
            .unservedItems, "The \(title) has been due for \(overdue.rounded): \(reason).", occasion: "\(due)"
        )
    }
}

extension RunLoop.Source: Supervised {
    var complaint: Complaint? {
        let signal = pendingSignal
        guard signal != .none else { return nil }
        let loops = memberships
        let reasons = loops.compactMap { loop, membership in
            loop.inbox.reasonForNeverRunning(membership) ?? reasonForSleeping(loop, membership)
        }
        guard !loops.isEmpty, reasons.count == loops.count else { return nil }
        let state = subject == nil ? "is signalled" : "has something to deliver"
        return Complaint(
            .unservedItems, "The \(title) \(state): \(reasons.joined(separator: "; ")).",
            occasion: "\(signal.number)")
    }
}

extension EventSource {
    /// Lets debug mode report the source if it is ready in modes that have never run. Called again after each change.
    final func superviseReadiness() {
        supervised = nil
        guard let inbox = loop?.inbox, inbox.neverRan(in: membership) else { return }
        let copy = SourceCopy { [title, number, watchedInterest, membership] in
            guard let reason = inbox.reasonForNeverRunning(membership) else { return nil }
            let events = (try? SystemCall.poll(number, for: watchedInterest.pollEvents)) ?? 0
            guard !Readiness(poll: events).isDisjoint(with: watchedInterest) else { return nil }
            return Complaint(.unservedItems, "The \(title) has something to report: \(reason).")
        }
        supervised = copy
        Watchdog.supervise(copy)
    }
}

/// As much of an event source as another thread may use.
private final class SourceCopy: Supervised {
    private let look: @Sendable () -> Complaint?

    init(_ look: @escaping @Sendable () -> Complaint?) { self.look = look }

    var complaint: Complaint? { look() }
}

/// "2 blocks or executors in tracking and 'custom'".
private func describe(_ blockCount: Int, in modes: ModeSet) -> String {
    "\(countedBlocks(blockCount)) in \(list(modes.names))"
}

/// Says of `modes` that the loop has never run in them.
private func neverRun(_ modes: ModeSet) -> String {
    "which \(modes.names.count > 1 || modes.contains(.common) ? "have" : "has") never run"
}

extension Inbox {
    /// Whether one report has said already that nothing runs the loop.
    fileprivate var isIdleOnPoolThread: Bool { isReportedForPool && !hasRun }

    /// Whether the loop has run in none of the modes of `membership`.
    func neverRan(in membership: Membership) -> Bool {
        !membership.modes(common: commonModes).intersects(modesThatRan)
    }

    /// Why an item in the modes of `membership` has never been served, as a clause; nil if one of them has run.
    func reasonForNeverRunning(_ membership: Membership) -> String? {
        guard !isClosed, !isIdleOnPoolThread, neverRan(in: membership) else { return nil }
        guard hasRun else { return "the \(loopName) has never run: call run(in:until:) on its thread" }
        let modes = membership.entryModes(common: commonModes)
        return modes.names.isEmpty ? nil : "it is \(only(in: modes)), \(neverRun(modes))"
    }
}
