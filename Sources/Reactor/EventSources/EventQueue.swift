import SystemPackage

/// Whether a task waits for an event, and whether there will be one.
@usableFromInline
final class EventSignal: Sendable {
    private struct State {
        var isClaimed = false
        /// The consumer waits, or is about to.
        var isAwaited = false
        /// The source waits for the consumer.
        var isPaused: Bool
        /// The source is to end.
        var isEnding = false
        var isOver = false
        var failure: Errno?
    }

    @usableFromInline let gate: Gate
    private let state: Mutex<State>
    private let ended: @Sendable () -> Void

    /// - Parameters:
    ///   - executor: That of the loop and the modes in which events are delivered.
    ///   - isPaused: Whether the source begins when the consumer waits for the first time.
    ///   - ended: Called when the source has ended.
    init(
        on executor: RunLoop.Executor, isPaused: Bool = false, ended: @escaping @Sendable () -> Void = {}
    ) {
        gate = Gate(on: executor)
        state = Mutex(State(isPaused: isPaused))
        self.ended = ended
    }

    // MARK: For the source, on the loop's thread

    /// Whether the consumer waits for the event that has come. If not, the caller must pause the source: it continues when the
    /// consumer waits.
    func beginDelivery() -> Bool {
        state.withLock { state in
            defer { state.isAwaited = false }
            if !state.isAwaited { state.isPaused = true }
            return state.isAwaited
        }
    }

    /// Ends `sources`, because of an error if there is one.
    func end(_ sources: [EventSource], throwing failure: Errno? = nil) {
        state.withLock { if !$0.isOver, let failure { $0.failure = failure } }
        for source in sources { source.end() }
        finish()
    }

    // MARK: From any thread

    /// Ends the events, with an error if there is one.
    func finish(throwing failure: Errno? = nil) {
        let isFirst = state.withLock { state in
            if !state.isOver, let failure { state.failure = failure }
            return !exchange(&state.isOver, with: true)
        }
        guard isFirst else { return }
        ended()
        gate.openFromAnywhere()
    }

    /// Notes that the source is to end; false if that is known.
    func beginEnding() -> Bool { state.withLock { !exchange(&$0.isEnding, with: true) } }

    @usableFromInline var isOver: Bool { state.withLock { $0.isOver } }
    var isEnding: Bool { state.withLock { $0.isEnding } }
    var isPaused: Bool { state.withLock { $0.isPaused } }

    // MARK: For the consumer

    /// Notes that the consumer waits.
    ///
    /// - Returns: Whether the source pauses, and must continue now; nil if there will be no event.
    func beginWaiting() -> Bool? {
        state.withLock { state in
            guard !state.isOver else { return nil }
            state.isAwaited = true
            return exchange(&state.isPaused, with: false)
        }
    }

    /// The reason for the end, for the first that asks.
    @usableFromInline
    func takeFailure() -> Errno? { state.withLock { $0.failure.take() } }

    /// Makes the caller the only consumer, until ``unclaim()``.
    func claim() {
        require(
            state.withLock { !exchange(&$0.isClaimed, with: true) },
            "Two tasks iterate over the same events of a run loop: only one may at a time.")
    }

    func unclaim() { state.withLock { $0.isClaimed = false } }
}

/// The events that the consumer has not taken yet.
final class EventQueue<Event: Sendable>: Sendable {
    fileprivate struct Events {
        /// Apart from the others: mostly there is one event, which then needs no memory.
        var first: Event?
        var others: ArraySlice<Event> = []

        mutating func append(_ event: Event) {
            if first == nil { first = event } else { others.append(event) }
        }
    }

    fileprivate let events = Mutex(Events())

    func take() -> Event? {
        events.withLock { events in
            let event = events.first.take()
            if !events.others.isEmpty {
                events.first = events.others.popFirst()
                // An empty slice keeps the memory of its array.
                if events.others.isEmpty { events.others = [] }
            }
            return event
        }
    }
}

/// What the handlers of sources retain to deliver events. The events end when it is released: with the sources, which end with
/// their loop.
final class EventInlet<Event: Sendable>: Sendable {
    private let signal: EventSignal
    private let queue: EventQueue<Event>?

    /// - Parameter queue: Nil if the consumer only waits.
    init(_ signal: EventSignal, _ queue: EventQueue<Event>?) { (self.signal, self.queue) = (signal, queue) }

    deinit { signal.finish() }

    /// Puts `event` in the place of the one that has not been taken, and lets the consumer continue.
    func put(_ event: Event) {
        queue?.events.withLock { $0.first = event }
        signal.gate.open()
    }

    /// Appends `event`, and lets the consumer continue.
    ///
    /// - Parameter isRepeated: Whether it says no more than an event that the consumer has not taken.
    func append(_ event: Event, unless isRepeated: (Event) -> Bool = { _ in false }) {
        queue?.events.withLock { events in
            let isKnown = events.first.map(isRepeated) == true || events.others.contains(where: isRepeated)
            if !isKnown { events.append(event) }
        }
        signal.gate.open()
    }

    /// Appends an event of `source`, which pauses unless the consumer waits.
    func append(_ event: Event, from source: EventSource) {
        if !signal.beginDelivery() { try? source.setInterest([]) }
        // Also lets a consumer continue that has seen the queue empty and is about to wait.
        append(event)
    }

    func finish(throwing error: Errno) { signal.finish(throwing: error) }
}
