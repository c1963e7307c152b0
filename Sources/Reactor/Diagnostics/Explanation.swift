import Glibc

// Why a handler is not called, for someone who waits for it.

extension RunLoop {
    /// Says in a sentence what the loop is doing, and what waits for it; for a person, so the wording may change.
    ///
    /// May be called from any thread at any time. On another thread than the loop's it asks the loop, for which a sleeping one
    /// is woken, and waits for the answer for a tenth of a second at most: of a loop that is stuck in a handler it says which
    /// kind of handler that is, and how much waits.
    ///
    /// ```swift
    /// print(RunLoop.main.explain())
    /// // The main run loop is busy in default. 12 blocks or executors wait for its next pass.
    /// ```
    public func explain() -> String {
        guard !inbox.belongsToParent else { return "The \(name) belongs to the parent process." }
        guard !inbox.isClosed else { return "The \(name) has ended with its thread." }
        // Before the question wakes it.
        let (isWaiting, isHosted, mode) = (isWaiting, inbox.isHosted, currentMode)
        let answer = ask { $0.waitingWork }
        let work = answer ?? inbox.knownWork
        guard let mode else {
            let advice = inbox.hasRun ? "" : " and has never run: call run(in:until:) on its thread"
            return "The \(name) is not running\(advice).\(elsewhere(work, than: ModeSet()))"
        }
        let served = inbox.runningModes
        let place = "\(mode.shortName)\(isHosted ? ", hosted by another event loop" : "")"
        let silence = answer == nil ? ", and has not answered for \(Self.answerTimeout.rounded)" : ""
        let activity =
            isWaiting ? "waiting in \(place)\(silence)" : "busy in \(place)\(silence)\(inbox.callUnderWay)"
        let next = isWaiting && !isHosted ? "" : nextBlocks(work.counts, in: served, isHosted)
        return "The \(name) is \(activity).\(next)\(elsewhere(work, than: served))"
    }

    private func nextBlocks(_ counts: [ModeSet: Int], in served: ModeSet, _ isHosted: Bool) -> String {
        let count = counts.reduce(0) { $1.key.intersects(served) ? $0 + $1.value : $0 }
        let event = isHosted ? "its host to call dispatch()" : "its next pass"
        return count == 0 ? "" : " \(waiting(count)) for \(event)."
    }

    /// What waits for other modes than those of `served`, or is not known to wait for these.
    private func elsewhere(_ work: WaitingWork, than served: ModeSet) -> String {
        var sentences = work.counts.filter { !$0.key.intersects(served) }.map { modes, count in
            " \(waiting(count)) for \(list(modes.names, "or"))."
        }.sorted()
        if work.otherCount > 0 { sentences.append(" \(waiting(work.otherCount)) since an earlier pass.") }
        if work.hasMainQueueWork, !served.contains(.common) {
            sentences.append(" The main queue and the main actor wait for the common modes.")
        }
        return sentences.joined()
    }

    private func waiting(_ count: Int) -> String {
        "\(countedBlocks(count)) \(count == 1 ? "waits" : "wait")"
    }

    /// Why an item in `modes` that has something to be called for has not been served yet, as a clause.
    package func reasonForDelay(of item: String, inModes modes: [Mode]) -> String {
        inbox.reasonForDelay(of: item, in: Membership(modes))
    }

    /// Whether the loop serves an item in `modes` as soon as that has something to be called for.
    package func serves(_ modes: [Mode]) -> Bool {
        inbox.runs(in: Membership(modes)) && (isWaiting || isCurrent)
    }
}

extension Inbox {
    /// The mode that runs, and `.common` if it is a common one.
    var runningModes: ModeSet {
        guard !belongsToParent, let currentMode else { return ModeSet() }
        return ModeSet(commonModes.contains(currentMode) ? [currentMode, .common] : [currentMode])
    }

    /// Whether the loop runs in one of the modes of `membership`.
    func runs(in membership: Membership) -> Bool {
        membership.entryModes(common: commonModes).intersects(runningModes)
    }

    /// Why an item in the modes of `membership` that has something to be called for has not been served yet, as a clause.
    func reasonForDelay(of item: String, in membership: Membership) -> String {
        guard let mode = currentMode, !isClosed else { return reasonForSilence }
        guard runs(in: membership) else {
            let modes = membership.entryModes(common: commonModes)
            return "the \(loopName) runs in \(mode.shortName), and \(item) is \(only(in: modes))"
        }
        if isHosted, isWaiting { return "the \(loopName) serves it when its host calls dispatch()" }
        if RunLoop.existing?.inbox === self { return "the \(loopName) serves it in its next pass" }
        return "the \(loopName) is \(isWaiting ? "about to serve it" : "busy\(callUnderWay)")"
    }

    /// Why the loop does not answer, as a clause.
    fileprivate var reasonForSilence: String {
        guard !belongsToParent else { return "the \(loopName) belongs to the parent process" }
        guard !isClosed else { return "the \(loopName) has ended with its thread" }
        guard let mode = currentMode else { return "the \(loopName) is not running" }
        return
            "the \(loopName) has been busy in \(mode.shortName) for \(RunLoop.answerTimeout.rounded)\(callUnderWay)"
    }

    /// The callback that keeps the loop busy: by its name if callbacks are measured, else by its kind.
    fileprivate var callUnderWay: String {
        guard let (call, time) = meter.current else {
            return meter.currentCallbackKind.name.map { ": it is calling \($0)" } ?? ""
        }
        let wait = call.wait.map { ", and is \($0)" } ?? ""
        return ": the \(call.name) has been running for \(time.rounded)\(wait)"
    }
}

extension RunLoop.Mode {
    /// The name as code has it, for a person.
    var shortName: String {
        switch self {
        case .default: "default"
        case .common: "the common modes"
        case .tracking: "tracking"
        case .eventTracking: "eventTracking"
        case .modalPanel: "modalPanel"
        default: "'\(rawValue)'"
        }
    }
}

extension Membership {
    fileprivate init(_ modes: some Sequence<RunLoop.Mode>) {
        self.init()
        for mode in modes { add(mode, common: ModeSet()) }
    }
}

extension ModeSet {
    /// The members as code has them, for a person.
    var names: [String] { members.filter { $0 != .nowhere }.map(\.shortName) }
}

/// "only in default", for an item that is in `modes`.
func only(in modes: ModeSet) -> String {
    modes.names.isEmpty ? "in no mode" : "only in \(list(modes.names))"
}

/// "a", "a and b", "a, b and c".
package func list(_ texts: [String], _ conjunction: String = "and") -> String {
    guard texts.count > 1 else { return texts.first ?? "" }
    return "\(texts.dropLast().joined(separator: ", ")) \(conjunction) \(texts[texts.count - 1])"
}

package func counted(_ count: Int, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }

func countedBlocks(_ count: Int) -> String {
    "\(count) \(count == 1 ? "block or executor" : "blocks or executors")"
}

// MARK: - Items

extension Timer {
    /// Says in a sentence why the closure is not being called; for a person, so the wording may change.
    ///
    /// May be called from any thread.
    ///
    /// ```swift
    /// print(timer.explain())
    /// // The timer has been due for 3.2 s: the main run loop runs in tracking, and the timer is only in default.
    /// ```
    public func explain() -> String {
        let (isValid, isFiring, due, tolerance, loop, membership, hasLoopEnded) = state.withLock { state in
            (
                state.isValid, state.isFiring, state.due, state.tolerance, state.loop, state.membership,
                state.hasLoopEnded
            )
        }
        guard isValid else {
            return
                "The \(title) is invalid: it was invalidated, its loop has ended, or it has fired and does not repeat."
        }
        if isFiring { return "The closure of the \(title) is being called." }
        guard let loop else { return "The \(title) is \(inNoLoop(hasLoopEnded: hasLoopEnded))." }
        let reason = loop.inbox.reasonForDelay(of: "the timer", in: membership)
        let overdue = Deadline(uptimeNanoseconds: due).duration(to: .now)
        if overdue > .zero, overdue < .nanoseconds(tolerance), loop.isWaiting, loop.inbox.runs(in: membership)
        {
            return "The \(title) has been due for \(overdue.rounded), and may be late by its tolerance of "
                + "\(Duration.nanoseconds(tolerance).rounded)."
        }
        if overdue > .zero { return "The \(title) has been due for \(overdue.rounded): \(reason)." }
        return
            "The \(title) is due in \((.zero - overdue).rounded)\(loop.inbox.runs(in: membership) ? "" : ", but \(reason)")."
    }
}

extension RunLoop.Source {
    /// Says in a sentence why `perform` is not being called; for a person, so the wording may change.
    ///
    /// May be called from any thread.
    public func explain() -> String {
        let loops = memberships
        guard isValid else { return "The \(title) has been invalidated." }
        if isPerforming { return "The \(title) is being performed." }
        guard !loops.isEmpty else { return "The \(title) is \(inNoLoop(hasLoopEnded: hasLoopEnded))." }
        guard isSignalled else { return "The \(title) has not been signalled since it was last performed." }
        let reasons = loops.map { loop, membership in
            reasonForSleeping(loop, membership) ?? loop.inbox.reasonForDelay(of: "the source", in: membership)
        }
        return "The \(title) is signalled: \(reasons.joined(separator: "; "))."
    }

    /// Why a loop that could serve the source sleeps, as a clause; nil if it does not.
    func reasonForSleeping(_ loop: RunLoop, _ membership: Membership) -> String? {
        guard loop.isWaiting, !loop.inbox.isHosted, loop.inbox.runs(in: membership) else { return nil }
        return "a signal does not wake the \(loop.name), so call wakeUp() after it"
    }
}

extension RunLoop.Source {
    /// Why a signal of this source of the library's own, for which the loop was woken, has not been served, as a clause.
    func reasonForDelay(of item: String) -> String {
        let reasons = memberships.map { loop, membership in
            loop.inbox.reasonForDelay(of: item, in: membership)
        }
        return reasons.isEmpty ? "its loop has ended" : reasons.joined(separator: "; ")
    }
}

extension RunLoop.Observer {
    /// Says in a sentence why the closure is not being called; for a person, so the wording may change.
    ///
    /// - Precondition: Called on the loop's thread.
    public func explain() -> String {
        guard isValid else {
            return
                "The \(title) is invalid: it was invalidated, its loop has ended, or it was called and does not repeat."
        }
        if isCalling { return "The closure of the \(title) is being called." }
        guard let loop else { return "The \(title) is \(inNoLoop())." }
        let state =
            loop.inbox.runs(in: membership)
            ? "the \(loop.name) is running in \(loop.currentMode?.shortName ?? "no mode")"
            : loop.inbox.reasonForDelay(of: "the observer", in: membership)
        return "The \(title) is called for \(list(activities.names)): \(state)."
    }
}

extension EventSource {
    /// Says in a sentence why the handler is not being called; for a person, so the wording may change.
    ///
    /// May be called from any thread. On another thread than the loop's it asks the loop, as ``RunLoop/explain()`` does.
    public final func explain() -> String {
        let known = identification.withLock { $0 }
        if known.isEnded {
            return known.hasLoopEnded
                ? "The \(title) has been closed, because its loop has ended."
                : "The \(title) has been cancelled or closed."
        }
        guard let loop = known.loop else { return "The \(title) is \(inNoLoop())." }
        let source = LoopOwned(self, on: loop)
        if let answer = loop.ask({ source.value.explanation(in: $0) }) { return answer }
        if number >= 0, loop.inbox.meter.currentCallbackKind == CallbackKind(descriptor: number) {
            return "The handler of the \(title) is being called."
        }
        return "The \(title) waits for its loop: \(loop.inbox.reasonForSilence)."
    }

    /// The events that the source waits for; nil if it has left the loop of `core`, whose thread this is.
    private final func explanation(in core: RunLoop.Core) -> String? {
        guard identification.withLock({ $0.loop }) === core.loop, let loop else { return nil }
        if isInCallback { return "The handler of the \(title) is being called." }
        let events = (try? SystemCall.poll(number, for: armedInterest.pollEvents)) ?? 0
        if events & CInt(POLLNVAL) != 0 {
            return
                "The \(title) can report nothing: its descriptor is closed. Cancel a source before its descriptor is closed."
        }
        let isReady = !Readiness(poll: events).isDisjoint(with: armedInterest)
        let reason = loop.inbox.reasonForDelay(of: "it", in: membership)
        if isMarkedReady || isReady { return "The \(title) has something to report: \(reason)." }
        let delay = loop.inbox.runs(in: membership) ? "" : ", and \(reason)"
        guard armedInterest.isEmpty else {
            return "The \(title) has nothing to report: \(silence)\(delay)."
        }
        let isReadable = SystemCall.isReadable(number)
        let state = "watches for nothing\(isReadable ? ", though its descriptor is readable" : "")"
        let cause = silence == readinessSilence ? "" : ": \(silence)"
        return "The \(title) \(state)\(cause)\(delay)."
    }
}

private func inNoLoop(hasLoopEnded: Bool = false) -> String {
    hasLoopEnded
        ? "in no run loop, as its loop has ended" : "in no run loop: add it with RunLoop.add(_:forMode:)"
}

extension RunLoop.Executor {
    /// Says in a sentence why jobs are not being run; for a person, so the wording may change.
    ///
    /// May be called from any thread.
    ///
    /// ```swift
    /// print(loop.executor().explain())  // The executor of the main run loop in the common modes has no jobs queued.
    /// ```
    public func explain() -> String {
        let tasks =
            suspendedCount == 0
            ? ""
            : " \(counted(suspendedCount, "task")) \(suspendedCount == 1 ? "waits" : "wait") for the loop's events."
        guard hasJobs else { return "The \(title) has no jobs queued.\(tasks)" }
        let reason = inbox.reasonForDelay(of: "it", in: Membership(modes.members))
        // Other threads may have queued several since the loop last took them in.
        let count = "\(counted(queuedCount, "job"))\(hasIncomingJobs ? " or more" : "")"
        return "The \(title) has \(count) queued: \(reason).\(tasks)"
    }

    var title: String {
        "executor of the \(inbox.loopName) in \(list(modes.names))"
    }
}
