extension Stream {
    /// Says in a sentence why the delegate is not being called; for a person, so the wording may change.
    ///
    /// May be called from any thread at any time.
    ///
    /// ```swift
    /// print(stream.explain())  // The input stream of /etc/hosts is scheduled on no run loop.
    /// ```
    public final func explain() -> String {
        "The \(engine.title) \(engine.explanation(hasDelegate: hasDelegate))."
    }

    /// Only on the loop's thread is the delegate itself looked at: it may be its thread's, and a look holds a reference, which
    /// may be the last one.
    private var hasDelegate: Bool {
        if self is any StreamDelegate { return true }
        return engine.isOnLoopOfThread ? delegate != nil : engine.mayHaveDelegate
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
            "The \(title) was released while it was scheduled: keep a reference to it, as loops and queues do not."
        )
    }

    /// Notes that the delegate has no method for an event that it was called for.
    func noteIgnored(_ event: Stream.Event) {
        state.withLock { $0.ignored = event.union($0.ignored ?? []) }
    }

    fileprivate var isOnLoopOfThread: Bool { state.withLock { $0.machine.isScheduled(on: .current) } }

    /// Whether the client has set a delegate, or overrides that, and the last event has found it.
    var mayHaveDelegate: Bool {
        state.withLock { state in
            (state.delegate.isSet || state.isSubclassed) && state.machine.delegateState != .missing
        }
    }

    /// The state of the stream, as a predicate.
    fileprivate func explanation(hasDelegate: Bool) -> String {
        let (machine, ignored, isWaitedForByTask, isHandedOff, isOnQueue) = state.withLock { state in
            (
                state.machine, state.ignored ?? [], state.taskDelegate?.isInUse, state.handoff != nil,
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
        if let isWaitedForByTask {
            return
                "is used by a task, which \(isWaitedForByTask ? "receives what comes" : "waits for nothing now")"
        }
        if isHandedOff { return "is owned by a hand-off, which reads it: ask that with explain()" }
        if !hasDelegate { return noDelegate }
        switch machine.delivery {
        case .underway: return "is calling its delegate"
        case .enqueued: return "waits for its queue, which is busy or suspended, to call its delegate"
        case .idle, .held: break
        }
        guard machine.isScheduled else { return "is scheduled on no run loop: call schedule(in:forMode:)" }
        if ignored.contains(machine.event), machine.isUnacknowledged { return noMethod(for: machine.event) }
        let isReady = !machine.pending.isEmpty || machine.isAcknowledged && self.isReady
        let state = machine.description(isReady: isReady)
        if isOnQueue { return state }
        guard let (loop, membership) = self.state.withLock({ $0.place }) else { return state }
        let reason = loop.inbox.reasonForDelay(of: "the stream", in: membership)
        if isReady { return "\(state): \(reason)" }
        return loop.inbox.runs(in: membership) ? state : "\(state), and \(reason)"
    }
}

private let noDelegate = "has no delegate: set one, and keep a reference to it, as the stream's is weak"

private func noMethod(for event: Stream.Event) -> String {
    let remedy =
        switch event {
        case .hasBytesAvailable: "implement it, and read"
        case .hasSpaceAvailable: "implement it, and write"
        default: "implement it"
        }
    return "has delivered \(event) to a delegate that does not implement stream(_:handle:): \(remedy)"
}

extension StreamEngine: Supervised {
    var complaint: Complaint? {
        if let complaint = mistake { return complaint }
        return unservedEvent.map { Complaint(.unservedItems, "The \(title) \($0).") }
    }

    /// The mistake that the client seems to have made.
    private var mistake: Complaint? {
        let (machine, ignored, isSubclassed, delegateChanges, isOwned) = state.withLock { state in
            let isOwned = state.handoff != nil || state.taskDelegate != nil
            return (state.machine, state.ignored ?? [], state.isSubclassed, state.delegateChanges, isOwned)
        }
        guard !isOwned, !machine.isCallingDelegate else { return nil }
        func complaint(_ predicate: String) -> Complaint {
            let occasion = "\(predicate) \(machine.lastTransfer) \(delegateChanges)"
            return Complaint(.silentStream, "The \(title) \(predicate).", occasion: occasion)
        }
        guard machine.isScheduled else {
            return machine.lastTransfer == .none ? idleness.map(complaint) : nil
        }
        // A subclass may do without opening its engine.
        if machine.status == .notOpen {
            return isSubclassed ? nil : complaint("is scheduled, but not open: call open()")
        }
        if ignored.contains(machine.event), machine.isUnacknowledged {
            return complaint(noMethod(for: machine.event))
        }
        for ending in [Stream.Event.endEncountered, .errorOccurred] where ignored.contains(ending) {
            return complaint(noMethod(for: ending))
        }
        // A program may write without ever asking whether there is room.
        guard machine.delegateState == .missing, machine.event == .hasBytesAvailable else { return nil }
        let news: Stream.Event = [.hasBytesAvailable, .endEncountered, .errorOccurred]
        return isReady || !machine.pending.isDisjoint(with: news) ? complaint(noDelegate) : nil
    }

    /// Why the stream, which is on no loop and of which nothing has been read or written, seems to be forgotten, as a
    /// predicate. One that was on a loop may have been removed on purpose.
    private var idleness: String? {
        let (machine, backend, childOutput, hasDelegate) = state.withLock { state in
            (state.machine, state.backend, state.childOutput, state.delegate.isSet && !state.isSubclassed)
        }
        let isOpening = if case .waiting = backend.progress() { true } else { false }
        // A call that waits for the opening returns with it, and one that waits for bytes changes the status.
        let isOpen = machine.status == .open || machine.status == .opening && !isOpening
        if hasDelegate, isOpen, !machine.wasScheduled,
            machine.status == .opening || machine.pending.contains(.openCompleted)
        {
            return "is open and has a delegate, but is scheduled on no run loop: call schedule(in:forMode:)"
        }
        guard isOpen || machine.status == .notOpen, childOutput?.isFullPipe == true else { return nil }
        return
            "is not being read and its pipe is full, so that the process waits if it writes more: open and schedule the "
            + "stream, or read it"
    }

    /// Lets debug mode report that no code reads what a child of this process writes to `pipe`.
    func superviseChildOutput(_ pipe: SharedDescriptor) {
        state.withLock { $0.childOutput = pipe }
        Watchdog.supervise(self)
    }

    /// Why there is something to deliver in modes that have never run, as a predicate; nil if there is not.
    private var unservedEvent: String? {
        let (machine, isOwned) = state.withLock { state in
            (state.machine, state.handoff != nil || state.taskDelegate != nil || state.queue != nil)
        }
        guard !isOwned, !machine.isCallingDelegate, machine.isOpen || !machine.pending.isEmpty else {
            return nil
        }
        guard let (loop, membership) = state.withLock({ $0.place }),
            let reason = loop.inbox.reasonForNeverRunning(membership)
        else { return nil }
        guard !machine.pending.isEmpty || machine.isAcknowledged && isReady else { return nil }
        return "\(machine.description(isReady: true)): \(reason)"
    }
}

extension StreamMachine {
    /// The event to deliver, or why there is none.
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
