extension Stream {
    /// Says in a sentence why the delegate is not being called; for a person, so the wording may change.
    ///
    /// May be called from any thread at any time.
    ///
    /// ```swift
    /// print(stream.explain())  // The input stream of /etc/hosts is scheduled on no run loop.
    /// ```
    public final func explain() -> String {
        "The \(engine.title) \(engine.explanation(hasDelegate: delegate != nil || self is any StreamDelegate))."
    }
}

extension StreamEngine {
    var noun: String {
        "\(backend.event == .hasSpaceAvailable ? "output" : "input") stream of \(subject)"
    }

    /// The noun with the label.
    var title: String { state.withLock { $0.name }.naming(noun) }

    /// The name of the stream's entry in the ledger. Connections are too many to have one each.
    var account: String {
        let kind = backend.event == .hasSpaceAvailable ? "output stream" : "input stream"
        return state.withLock { $0.name }.naming(kind)
    }

    /// The stream's state, for a dump.
    var summary: String {
        state.withLock { state in
            let pending = state.machine.pending
            return "\(state.machine.status)\(pending.isEmpty ? "" : ", \(pending) pending")"
        }
    }

    /// Reports a stream that nothing refers to any more and that has delivered no event. One that has failed, or has
    /// delivered something, may have been dropped on purpose.
    @inline(never)
    func reportRelease() {
        guard process.isCurrent else { return }
        let isSilent = state.withLock { state in
            let isUnopened = [.notOpen, .opening].contains(state.machine.status)
            let hasFailed = state.machine.status == .error
            return state.machine.isScheduled && !hasFailed
                && (isUnopened || state.machine.pending.contains(.openCompleted))
                && state.handoff == nil && state.taskDelegate == nil
        }
        guard isSilent else { return }
        LoopDiagnostics.report(
            .releasedStream,
            "The \(title) was released while it was scheduled on a run loop: keep a reference to it, as loops do not."
        )
    }

    /// Notes that the delegate has no method for an event that it was called for.
    @inline(never)
    func noteIgnored(_ event: Stream.Event) {
        if event == .hasBytesAvailable { state.withLock { $0.isIgnored = true } }
    }

    /// What the stream is doing, as a predicate.
    fileprivate func explanation(hasDelegate: Bool) -> String {
        let (machine, isIgnored, isTasks, isHandedOff, isOnQueue) = state.withLock { state in
            (
                state.machine, state.isIgnored, state.taskDelegate?.isInUse == true, state.handoff != nil,
                state.queue != nil
            )
        }
        switch machine.status {
        case .notOpen: return "is not open: call open()"
        case .closed: return "is closed"
        case .error where machine.pending.isEmpty:
            return "has failed: \(error.map { "\($0)" } ?? "for an unknown reason")"
        default: break
        }
        if isTasks { return "is used by a task, which receives what comes" }
        if isHandedOff { return "is owned by a hand-off, which reads it: ask that with explain()" }
        if !hasDelegate { return noDelegate }
        switch machine.delivery {
        case .underway: return "is calling its delegate"
        case .enqueued: return "waits for its queue, which is busy or suspended, to call its delegate"
        case .idle: break
        }
        guard machine.isScheduled else { return "is scheduled on no run loop" }
        if isIgnored, machine.isUnacknowledged { return noMethod }
        let isReady = !machine.pending.isEmpty || machine.isAcknowledged && self.isReady
        let state = machine.description(isReady: isReady)
        if isOnQueue { return state }
        let loops = machine.schedule.entries { _ in true }.compactMap { entry in
            entry.attachment.map { ($0.loop, entry.membership) }
        }
        let reasons = loops.map { $0.reasonForDelay(of: "the stream", in: $1) }.joined(separator: "; ")
        if isReady { return "\(state): \(reasons)" }
        return loops.contains { $0.runs(in: $1) } ? state : "\(state), and \(reasons)"
    }
}

private let noDelegate = "has no delegate: set one, and keep a reference to it, as the stream's is weak"
private let noMethod =
    "has delivered hasBytesAvailable to a delegate that has no stream(_:handle:), or a private one, and waits for a read"

extension StreamEngine: Watched {
    var complaint: LoopDiagnostics.Report? {
        if let silence { return .init(kind: .silentStream, text: "The \(title) \(silence).") }
        return delay.map { .init(kind: .unservedItems, text: "The \(title) \($0).") }
    }

    /// What the client has forgotten, as a predicate; nil for nothing.
    private var silence: String? {
        let (machine, isIgnored, isSubclassed, isOwned) = state.withLock { state in
            let isOwned = state.handoff != nil || state.taskDelegate != nil
            return (state.machine, state.isIgnored, state.isSubclassed, isOwned)
        }
        guard machine.isScheduled, !isOwned, machine.delivery == .idle else { return nil }
        // A subclass may do without opening its engine.
        if machine.status == .notOpen {
            return isSubclassed ? nil : "is scheduled, but not open: call open()"
        }
        if isIgnored, machine.isUnacknowledged { return noMethod }
        // A program may write without ever asking whether there is room.
        guard machine.delegateState == .missing, machine.event == .hasBytesAvailable else { return nil }
        let news: Stream.Event = [.hasBytesAvailable, .endEncountered, .errorOccurred]
        return isReady || !machine.pending.isDisjoint(with: news) ? noDelegate : nil
    }

    /// Why there is something to deliver in modes that have never run, as a predicate; nil if there is not.
    private var delay: String? {
        let (machine, isWatched) = state.withLock { state in
            let isOwned = state.handoff != nil || state.taskDelegate != nil || state.queue != nil
            return (state.machine, !isOwned)
        }
        guard isWatched, machine.delivery == .idle, machine.isOpen || !machine.pending.isEmpty else {
            return nil
        }
        let isReady = !machine.pending.isEmpty || machine.isAcknowledged && self.isReady
        let loops = machine.schedule.entries { _ in true }.compactMap { entry in
            entry.attachment.map { ($0.loop.inbox, entry.membership) }
        }
        let reasons = loops.compactMap { $0.reasonForNeverRunning($1) }
        guard isReady, !loops.isEmpty, reasons.count == loops.count else { return nil }
        return "\(machine.description(isReady: true)): \(reasons.joined(separator: "; "))"
    }
}

extension StreamMachine {
    /// What there is to deliver, or why there is nothing.
    fileprivate func description(isReady: Bool) -> String {
        if !pending.isEmpty { return "has \(list(pending.names)) to deliver" }
        if status == .opening { return "is still opening" }
        if status == .atEnd { return "has reached its end" }
        let isInput = event == .hasBytesAvailable
        if !isAcknowledged { return "has delivered \(event) and waits for a \(isInput ? "read" : "write")" }
        if isReady { return "has \(isInput ? "bytes to read" : "room for bytes")" }
        return isInput ? "has no bytes to read" : "has no room: the earlier bytes have not been taken yet"
    }
}
