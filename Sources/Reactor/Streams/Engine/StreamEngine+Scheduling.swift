import SystemPackage

// The run loop of a stream: its source there, and how it is updated.

/// A stream's source on one run loop, with or without a descriptor.
final class StreamSource: EventSource {
    private let engine: StreamEngine
    /// What lives as long as the stream is on the loop.
    private var kept: AnyObject?

    init(of engine: StreamEngine, keeping kept: AnyObject?) {
        (self.engine, self.kept) = (engine, kept)
        super.init(-1, for: [])
    }

    func signal() { if !isMarkedReady { markReady() } }

    override func releaseResources() { kept = nil }

    override func serve(_ readiness: Readiness) -> Bool {
        engine.serve(readiness == .marked ? .none : .made(reportedAt))
    }

    override func loopEnded(_ loop: RunLoop) { engine.loopEnded(loop) }

    override var subject: String { engine.subject }

    override var noun: String { engine.noun }

    override var title: String { engine.title }

    override var account: String { engine.account }

    override var dumpLine: String { "\(engine.title): \(engine.summary)" }

    /// The engine asks the kernel itself.
    override var confirmsLateReadiness: Bool { false }
}

/// A stream's source, and the run loop that has it.
///
/// Any thread may release the source last: its loop retains it from joining to ``EventSource/end()``, and before
/// and after that it has no watch, which is all that belongs to the loop's thread.
struct LoopSource {
    let loop: RunLoop
    let source: LoopBound<StreamSource>

    fileprivate init(_ loop: RunLoop, _ engine: StreamEngine, keeping kept: AnyObject?) {
        self.loop = loop
        source = LoopBound(StreamSource(of: engine, keeping: kept), owner: loop.identity)
    }

    /// Signals the loop to serve the stream in its next pass. Called on its thread.
    func signal() { source.value.signal() }

    /// Ends the source on its loop's thread.
    func end() {
        if loop.isCurrent { return source.value.cancel() }
        loop.runOnLoopThread { [source] _ in source.value.cancel() }
    }
}

// MARK: - Scheduling

extension StreamEngine {
    /// - Parameter kept: What the loop retains as long as the stream is there; released on its thread.
    func schedule(in loop: RunLoop, _ mode: RunLoop.Mode, keeping kept: AnyObject? = nil) {
        loop.requireNotOfParent()
        // The stream stays where it is.
        if loop.inbox.isClosed { return }
        leaveQueue()
        join(loop, mode, keeping: kept) { _ in }
    }

    /// Schedules the stream in a mode of a loop, in the place of the one that it is on, unless the stream is closed. Makes
    /// `change` at the same time.
    func join(
        _ loop: RunLoop, _ mode: RunLoop.Mode, keeping kept: AnyObject? = nil, _ change: (inout State) -> Void
    ) {
        let common = loop.commonModes
        let (next, left, taskDelegate) = state.withLock { state -> (Next, LoopSource?, UnparkingDelegate?) in
            guard state.handoff.map({ $0.loop === loop }) ?? true,
                state.machine.schedule(on: loop.identity, mode, common: common)
            else { return (Next(), nil, state.taskDelegate) }
            change(&state)
            var left: LoopSource?
            if state.loopSource?.loop !== loop {
                left = exchange(&state.loopSource, with: LoopSource(loop, self, keeping: kept))
            }
            state.refresh()
            return (state.takeNext(), left, state.taskDelegate)
        }
        left?.end()
        if LoopDiagnostics.isReporting { Watchdog.supervise(self) }
        if let loop = enqueue(next) { update(loop) }
        taskDelegate?.streamChanged()
    }

    func remove(from loop: RunLoop, _ mode: RunLoop.Mode) {
        let common = loop.commonModes
        let (removal, left, handoff, taskDelegate) = state.withLock { state in
            let removal = state.machine.unschedule(from: loop.identity, mode, common: common)
            let left = removal == .left ? state.loopSource.take() : nil
            return (removal, left, state.handoff, state.taskDelegate)
        }
        switch removal {
        case .none: break
        case .changed:
            update(loop)
            taskDelegate?.streamChanged()
        case .left:
            left?.end()
            handoff?.streamChanged()
            taskDelegate?.streamChanged()
        }
    }

    /// Removes the stream from its loop and from its queue.
    func detach() {
        let (left, handoff) = state.withLock { ($0.detach(), $0.handoff) }
        left?.end()
        handoff?.streamChanged()
    }

    fileprivate func loopEnded(_ loop: RunLoop) {
        let (left, taskDelegate) = state.withLock { state in
            (state.loopSource?.loop === loop ? state.detach() : nil, state.taskDelegate)
        }
        taskDelegate?.streamChanged()
        withExtendedLifetime(left) {}
    }
}

/// The consequences of a change of a stream, besides the signal for this thread's loop.
private struct Next {
    /// The loop that is to be updated.
    var loop: RunLoop?
    /// The queue that is to call back.
    var queue: StreamQueue?
    /// Whether that only reports its turn.
    var isHeld = false
}

extension StreamEngine.State {
    /// Signals this thread's loop, or takes what else follows from a change.
    fileprivate mutating func takeNext() -> Next {
        if !machine.isOnQueue, signalOwnLoop() { return Next() }
        let (isForLoop, isForQueue) = machine.takeUpdate()
        return Next(
            loop: isForLoop ? loopSource?.loop : nil, queue: isForQueue ? self.queue : nil,
            isHeld: machine.delivery == .held)
    }

    func source(on loop: LoopIdentity) -> LoopBound<StreamSource>? {
        machine.isScheduled(on: loop) ? loopSource?.source : nil
    }

    /// The loop that the stream is on, and how.
    var place: (loop: RunLoop, membership: Membership)? {
        guard let loop = loopSource?.loop, let membership = machine.loopSchedule?.membership else {
            return nil
        }
        return (loop, membership)
    }

    /// Leaves the loop and the queue. Returns what the engine has had on the loop.
    mutating func detach() -> LoopSource? {
        machine.detach()
        self.queue = nil
        isScheduledForTask = false
        return loopSource.take()
    }
}

// MARK: - For hand-offs

extension StreamEngine {
    /// Whether the stream is scheduled, and `delegate` receives its events.
    func delivers(to delegate: any StreamDelegate) -> Bool {
        state.withLock { $0.machine.isScheduled } && self.delegate === delegate
    }

    /// Gives the stream to a hand-off, and removes it from its loop and its queue. Returns false if another
    /// hand-off owns it.
    ///
    /// Until it is closed, the stream cannot be scheduled on another loop than the hand-off's.
    ///
    /// - Precondition: No task uses the stream.
    func handOver(to handoff: HandoffBinding) -> Bool {
        require(
            state.withLock { $0.taskDelegate }?.isInUse != true,
            "A stream cannot be handed off while a task uses it: cancel the task, or wait for it, first.")
        let isFree = state.withLock { state in
            let isFree = state.machine.handOver()
            if isFree { state.handoff = handoff }
            return isFree
        }
        if isFree { detach() }
        return isFree
    }

    /// Ends what ``handOver(to:)`` began. The hand-off closes the stream itself.
    func endHandoff() { _ = state.withLock { $0.handoff.take() } }
}

/// The hand-off that owns a stream.
final class HandoffBinding: Sendable {
    let loop: RunLoop
    /// Called when the stream has been closed or removed from its loop, or has got another delegate. Any thread
    /// may call it.
    let streamChanged: Callback

    init(_ loop: RunLoop, streamChanged: Callback) { (self.loop, self.streamChanged) = (loop, streamChanged) }
}

// MARK: Updating the loop

extension StreamEngine {
    /// Finds out whether bytes can be moved now, and has the loop deliver what is pending.
    func refresh() { update { $0.refresh() } }

    /// Updates the loop if it is behind or has to deliver an event.
    ///
    /// - Parameter change: Made at the same time: no other thread takes what follows from it.
    func update(after change: (inout State) -> Void = { _ in }) {
        if let loop = apply(change) { update(loop) }
    }

    /// As ``update(after:)``, of two streams that share a connection. If both are on another thread's loop, that is woken once.
    static func update(_ first: StreamEngine?, _ second: StreamEngine?, after change: (inout State) -> Void) {
        let (loop, other) = (first?.apply(change), second?.apply(change))
        guard let first, let second, let loop, let other, loop === other, !loop.isCurrent else {
            if let loop { first?.update(loop) }
            if let other { second?.update(other) }
            return
        }
        let waiting = [first, second].filter { $0.requestUpdate(of: loop) }
        guard !waiting.isEmpty else { return }
        let isPosted = loop.runOnLoopThread { core in for engine in waiting { core.updateInTurn(engine) } }
        if !isPosted { for engine in waiting { engine.loopEnded(loop) } }
    }

    /// Performs a change, and enqueues the callback that follows. Returns the loop that is to be updated.
    private func apply(_ change: (inout State) -> Void) -> RunLoop? {
        enqueue(
            state.withLock { state in
                change(&state)
                return state.takeNext()
            })
    }

    /// Enqueues the callback that follows from a change. Returns the loop that is to be updated.
    private func enqueue(_ next: Next) -> RunLoop? {
        guard let queue = next.queue else { return next.loop }
        if next.isHeld { reportTurn(on: queue) } else { enqueueCallback(on: queue) }
        return next.loop
    }

    /// Updates `loop`: now if this is its thread, else in its next pass, for which it is woken.
    private func update(_ loop: RunLoop) {
        if loop.isCurrent {
            return loop.inbox.isClosed ? loopEnded(loop) : loop.useCore { $0.updateInTurn(self) }
        }
        guard requestUpdate(of: loop) else { return }
        if !loop.runOnLoopThread({ [self] core in core.updateInTurn(self) }) { loopEnded(loop) }
    }

    /// Returns whether to ask another thread's loop for an update: false if an earlier request is pending.
    private func requestUpdate(of loop: RunLoop) -> Bool {
        state.withLock { $0.machine.isScheduled(on: loop.identity) && $0.machine.requestUpdate() }
    }

    /// Returns what this thread's `loop` has to do, once, with what it needs for it.
    fileprivate func takeUpdate(
        of loop: LoopIdentity
    ) -> (update: LoopSchedule.Update, source: StreamSource, interest: Readiness, SharedDescriptor?)? {
        state.withLock { state in
            guard let source = state.source(on: loop)?.value, let update = state.machine.update(loop)
            else { return nil }
            let isWatched = update.isWatched
            let interest = isWatched ? state.machine.interest : []
            return (update, source, interest, isWatched ? state.backend.descriptor : nil)
        }
    }

    /// Fails the stream because the kernel refuses to watch its descriptor.
    fileprivate func failWatching(_ error: Errno, on loop: RunLoop) {
        state.withLock { $0.machine.failWatching(on: loop.identity, error) }
        refresh()
    }
}

extension RunLoop.Core {
    /// Updates `engine`'s source after the earlier changes of other threads.
    fileprivate func updateInTurn(_ engine: StreamEngine) {
        if hasMoreCommands { return runLater { core in core.update(engine) } }
        drainInbox()
        update(engine)
    }

    /// Updates `engine`'s source.
    func update(_ engine: StreamEngine) {
        guard let (update, source, interest, descriptor) = engine.takeUpdate(of: identity),
            source.loop != nil || source.join(loop)
        else { return }
        do throws(Errno) {
            if let descriptor, source.shared !== descriptor { source.adopt(descriptor) }
            if source.watchedInterest != interest { try source.changeInterest(interest) }
            if source.membership != update.membership || (update.isWatched && !source.hasPoller) {
                source.membership = update.membership
                try self.update(source)
            }
        } catch {
            try? source.changeInterest([])
            return engine.failWatching(error, on: loop)
        }
        if update.isSignalled { source.signal() }
    }
}

extension ResidentThread {
    /// The thread that connects sockets, makes their TLS handshakes, runs their timeouts, sends what the kernel had no room
    /// for and closes them gracefully, whichever loop their streams are on; it also waits for streams whose events go to a
    /// queue. Of the client's code it runs only what a handshake calls.
    package static let streams = ResidentThread(name: "reactor.streams")
}
