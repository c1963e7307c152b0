import CReactorLinux
import Glibc

// What a loop reports in debug mode: what it leaves undone, and that nothing runs it.

extension RunLoop.Core {
    /// Reports what has not been done when the loop ends.
    @inline(never)
    func reportLeftovers() {
        drainInbox()
        let leftovers = knownStates.compactMap(describeLeftovers)
        guard !leftovers.isEmpty else { return }
        let remedy = meter.passes.value == 0 ? " without having run: call run(in:until:) on its thread" : ""
        LoopDiagnostics.report(
            .unservedItems,
            "The \(inbox.loopName) has ended\(remedy). It has not served \(leftovers.joined(separator: "; "))."
        )
    }

    /// What a mode leaves: everything if none of an item's modes has run, else what is due or ready and would have been
    /// done only once.
    private func describeLeftovers(of state: ModeState) -> String? {
        let timers = state.timers.elements.filter { isLeft($0, in: state) }.map(\.title)
        let sources = state.sources.members.filter { source in
            isHome(state, of: source.membership(in: loop)) && (!hasRun(state) || source.isSignalled)
        }.map(\.title)
        let events = state.eventSources.members.filter { source in
            source !== mainQueue && !hasRun(state) && isHome(state, of: source.membership)
        }.map(\.title)
        let blocks = state.blockCount > 0 ? ["\(countedBlocks(state.blockCount)) with jobs"] : []
        let items = timers.sorted() + sources.sorted() + events.sorted() + blocks
        guard !items.isEmpty else { return nil }
        let mode = state.mode.shortName + (hasRun(state) ? "" : ", which has never run")
        return "\(items.joined(separator: ", ")) in \(mode)"
    }

    /// Not a timer that is being called, whose closure may end the process, nor one that the library has made.
    private func isLeft(_ timer: Timer, in state: ModeState) -> Bool {
        let (isOwn, isFiring, due, membership) = timer.state.withLock { timer in
            (timer.name?.isInternal == true, timer.isFiring, timer.due, timer.membership)
        }
        guard !isOwn, !isFiring, isHome(state, of: membership) else { return false }
        return !hasRun(state) || timer.period == 0 && due <= Deadline.now.uptimeNanoseconds
    }

    /// Whether an item is reported for `state`: the first of its modes that has run, or the first of all if none has.
    private func isHome(_ state: ModeState, of membership: Membership) -> Bool {
        let modes = membership.registrationModes(common: commonModes).members
        let served = modes.first { mode in knownState(of: mode).map(hasRun) ?? false }
        return state.mode == (served ?? modes.first)
    }

    private func hasRun(_ state: ModeState) -> Bool {
        guard state.mode == .common else { return state.record.hasRun }
        return commonModes.members.contains { knownState(of: $0)?.record.hasRun == true }
    }
}

extension RunLoop {
    /// Begins to report what looks like a mistake in the use of a new loop.
    func beginReporting() {
        if isMain { Self.reportAtExit() } else { reportPoolThread() }
    }

    /// Has the main thread's loop report what it leaves: it does not end before the process does.
    static func reportAtExit() { _ = isReportingAtExit }

    private static let isReportingAtExit: Bool =
        atexit {
            guard LoopDiagnostics.isReporting, reactor_is_main_thread(), reactor_current_loop() != 0 else {
                return
            }
            let main = RunLoop.ofCallingThread
            if main.isMain, !main.inbox.belongsToParent { main.core.reportLeftovers() }
        } == 0

    /// Reports a loop of a thread that returns to a pool as soon as the code that uses it has returned.
    private func reportPoolThread() {
        guard reactor_is_on_pool_thread() else { return }
        LoopDiagnostics.report(
            .runLoopOnPoolThread,
            "RunLoop.current was used on \(currentThreadName) of Dispatch's or Swift's pool. Its loop serves nothing unless "
                + "that code runs it: use RunLoop.main, or the loop of a RunLoopThread.")
    }
}
