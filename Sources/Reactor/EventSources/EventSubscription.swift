import SystemPackage

/// The sources of a loop whose events a task consumes, which may be on any thread.
///
/// The sources' handlers yield the events to an ``EventContinuation``. The sources end when the consumer's task is cancelled,
/// with the loop, and with the last reference to the subscription: so their handlers do not retain that.
///
/// Nothing here is generic: the library does not know its clients' types, and would look up their metadata with each event.
/// The generic part is inlined into the client.
@usableFromInline
final class EventSubscription: Sendable {
    @usableFromInline let state: SubscriptionState
    /// Any thread may release them last: their handlers capture only what is `Sendable`, and before the loop adds them, and
    /// once they have ended, they belong to no loop.
    private let sources: LoopBound<[EventSource]>
    /// What the sources are interested in while they do not pause.
    private let interest: Readiness
    /// Weak, because its release, with the loop, ends the events.
    private weak let timer: Timer?
    /// Whether the client must keep a descriptor open until the sources have ended.
    private let isWatchingDescriptor: Bool
    /// Whether the sources end if they cannot be registered; if not, each wait tries it again.
    private let endsOnFailure: Bool

    var loop: RunLoop { state.parker.loop }

    /// Adds `sources` to their loop on its thread: now, if this is it.
    init(
        to sources: [EventSource], _ state: SubscriptionState, timer: Timer? = nil,
        for interest: Readiness = .readable, isWatchingDescriptor: Bool = false, endsOnFailure: Bool = true
    ) {
        let loop = state.parker.loop
        (self.state, self.timer, self.interest) = (state, timer, interest)
        (self.isWatchingDescriptor, self.endsOnFailure) = (isWatchingDescriptor, endsOnFailure)
        self.sources = LoopBound(sources, owner: loop.identity)
        loop.requireNotOfParent()
        update()
    }

    /// Watches `descriptor`, once the consumer waits.
    ///
    /// - Parameters:
    ///   - endsOnFailure: Whether the sources end if the kernel does not watch it; if not, each wait tries it again.
    ///   - ended: Called when the loop does not watch any more.
    convenience init(
        on loop: RunLoop, inModes modes: [RunLoop.Mode], watching descriptor: FileDescriptor,
        for interest: Readiness, endsOnFailure: Bool = true, ended: @escaping @Sendable () -> Void = {}
    ) {
        let state = SubscriptionState(on: loop, inModes: modes, isPaused: true, ended: ended)
        let source = AwaitedDescriptor(descriptor, state)
        self.init(
            to: [source], state, for: interest, isWatchingDescriptor: true, endsOnFailure: endsOnFailure)
    }

    deinit { end() }

    /// Lets the sources deliver an event; false if they have ended.
    @usableFromInline
    func prepareToWait() -> Bool {
        guard let isPaused = state.beginWaiting() else { return false }
        if isPaused { update() }
        return true
    }

    /// Ends the sources because the consumer's task was cancelled. Returns once the client may close the descriptor that they
    /// watch; at once, if they watch none.
    @usableFromInline
    func endAndWait(isolation: isolated (any Actor)?) async {
        end()
        if !isWatchingDescriptor { state.finish() }
        while !state.isOver { await state.parker.parkIgnoringCancellation(isolation: isolation) }
    }

    /// Ends the sources on the loop's thread: now, if this is it.
    func end() {
        guard state.beginEnding() else { return }
        timer?.invalidate()
        update()
    }

    /// Brings the sources to the state that the consumer wants, whatever was done before. So it does not matter in which order
    /// this thread's updates and those that other threads have posted are made.
    private func update() {
        let update: Inbox.Command = { [sources, state, interest, endsOnFailure] core in
            if state.isEnding || core.inbox.isClosed { return state.end(sources.value) }
            do throws(Errno) {
                for source in sources.value {
                    if source.loop == nil {
                        for mode in state.parker.executor.modes.members {
                            try core.loop.register(source, forMode: mode)
                        }
                    }
                    if !state.isPaused { try source.changeInterest(interest) }
                }
            } catch {
                guard endsOnFailure else { return state.pause(throwing: error) }
                state.end(sources.value, throwing: error)
            }
        }
        let hasLoop = loop.runOnLoopThread { [state] core in
            if !state.isEnding, core.hasMoreCommands { core.runLater(update) } else { update(core) }
        }
        if !hasLoop { state.finish() }
    }
}

/// A descriptor that the kernel watches while the consumer waits for it to be ready.
private final class AwaitedDescriptor: EventSource {
    private let state: SubscriptionState

    init(_ descriptor: FileDescriptor, _ state: SubscriptionState) {
        require(descriptor.rawValue >= 0, "A task awaits an open descriptor, not \(descriptor.rawValue).")
        self.state = state
        super.init(descriptor.rawValue, for: [])
    }

    override var kind: String { "descriptor source" }

    override func serve(_ readiness: Readiness) -> Bool {
        // Not an event that is kept: it may be over when the consumer asks.
        if state.beginDelivery() { state.deliver(readiness) } else { try? changeInterest([]) }
        return true
    }

    override func ended() { state.finish() }
}

// MARK: - Waiting for a descriptor

// The kernel watches the descriptor, which another object owns, while a task waits, and after a timeout until the next event. A
// task that is cancelled, or whose deadline passes, takes nothing with it.

extension EventSubscription {
    /// The first element that `take` returns, which this calls at once and each time that the descriptor may be ready.
    ///
    /// - Throws: As ``wait(until:)`` or `take` does.
    nonisolated(nonsending) func next<Element: Sendable>(
        until deadline: Deadline?, _ take: () throws(Errno) -> Element?
    ) async throws(Errno) -> Element {
        if Task.isCancelled { throw .canceled }
        while true {
            switch state.beginTaking() {
            case .now: if let element = try take() { return element }
            case .afterPass:
                state.parker.unparkAfterPass()
                try await state.parker.park(until: deadline)
                continue
            case .never: break
            }
            try await wait(until: deadline)
        }
    }

    /// Waits until the descriptor is ready. May return early.
    ///
    /// - Throws: As ``TaskParker/park(until:)``; what epoll_ctl(2) does; `Errno.badFileDescriptor` once the subscription or the
    ///   loop's thread has ended.
    nonisolated(nonsending) func wait(until deadline: Deadline?) async throws(Errno) {
        guard prepareToWait() else { throw endReason }
        try await state.parker.park(until: deadline)
        if !endsOnFailure, let failure = state.takeFailure() { throw failure }
    }

    /// Waits until `date`, whether the descriptor is ready or not; throws as ``wait(until:)`` if `deadline`
    /// comes first.
    nonisolated(nonsending) func pause(until date: Deadline, deadline: Deadline?) async throws(Errno) {
        while date > loop.now {
            if state.isOver { throw endReason }
            if let deadline, deadline <= loop.now { throw .timedOut }
            try await state.parker.park(until: deadline.map { min($0, date) } ?? date)
        }
    }

    /// Why nothing can be awaited any more.
    private var endReason: Errno { state.takeFailure() ?? .badFileDescriptor }
}

extension Duration? {
    /// The deadline that is so far from now on `loop`.
    func deadline(on loop: RunLoop) -> Deadline? { map { loop.now + $0 } }
}
