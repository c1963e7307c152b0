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
            .workLeft,
            "The \(inbox.loopName) has ended\(remedy). It has not served \(leftovers.joined(separator: "; "))."
        )
    }

    /// What a mode leaves: everything if it has never run, else what would have been done only once.
    private func describeLeftovers(of state: ModeState) -> String? {
        let hasRun = hasRun(state)
        let timers = state.timers.elements.filter { !hasRun || $0.period == 0 }.map(\.title)
        let sources = state.sources.members.filter { !hasRun || $0.isSignalled }.map(\.title)
        let events = hasRun ? [] : state.eventSources.members.filter { $0 !== mainQueue }.map(\.title)
        let blocks = state.blockCount > 0 ? ["\(state.blockCount) blocks or executors with jobs"] : []
        let items = timers.sorted() + sources.sorted() + events.sorted() + blocks
        guard !items.isEmpty else { return nil }
        let mode = state.mode.shortName + (hasRun ? "" : ", which has never run")
        return "\(items.joined(separator: ", ")) in \(mode)"
    }

    private func hasRun(_ state: ModeState) -> Bool {
        guard state.mode == .common else { return state.hasRun }
        return commonModes.members.contains { knownState(of: $0)?.hasRun == true }
    }
}

extension RunLoop {
    /// Begins to report what looks like a mistake in the use of a new loop.
    func beginReporting() {
        guard isMain else { return reportPoolThread() }
        // The main thread's loop does not end before the process does.
        atexit { if RunLoop.main.isCurrent { RunLoop.main.core.reportLeftovers() } }
    }

    /// Reports a loop of a thread that returns to a pool as soon as the code that uses it has returned.
    ///
    /// Dispatch names its workers, Swift's included, by their quality of service.
    private func reportPoolThread() {
        guard currentThreadName.contains("qos") else { return }
        LoopDiagnostics.report(
            .poolThread,
            "RunLoop.current was used on \(currentThreadName) of Dispatch's or Swift's pool. Its loop serves nothing unless "
                + "that code runs it: use RunLoop.main, or the loop of a RunLoopThread.")
    }
}
