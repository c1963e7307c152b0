import Synchronization
import SystemPackage

/// Whether a task waits for an event, and whether there will be one.
@usableFromInline
final class EventSignal: Sendable {
    private typealias Marks = UInt8
    /// A task consumes the events.
    private static let claimed: Marks = 1
    /// The consumer waits, or is about to.
    private static let awaited: Marks = 2
    /// The source waits for the consumer.
    private static let paused: Marks = 4
    /// The source is to end.
    private static let ending: Marks = 8
    /// There will be no more events.
    private static let over: Marks = 16

    @usableFromInline let gate: Gate
    private let marks: Atomic<Marks>
    private let failure = Mutex<Errno?>(nil)
    private let ended: @Sendable () -> Void

    /// - Parameters:
    ///   - executor: That of the loop and the modes in which events are delivered.
    ///   - isPaused: Whether the source begins when the consumer waits for the first time.
    ///   - ended: Called when the source has ended.
    init(
        on executor: RunLoop.Executor, isPaused: Bool = false, ended: @escaping @Sendable () -> Void = {}
    ) {
        gate = Gate(on: executor)
        marks = Atomic(isPaused ? Self.paused : 0)
        self.ended = ended
    }

    private func has(_ mark: Marks) -> Bool { marks.load(ordering: .acquiring) & mark != 0 }

    /// Returns whether `mark` is new.
    private func set(_ mark: Marks) -> Bool {
        marks.bitwiseOr(mark, ordering: .acquiringAndReleasing).oldValue & mark == 0
    }

    /// Changes the marks, unless `change` returns nil; returns what they were, or nil.
    private func update(_ change: (Marks) -> Marks?) -> Marks? {
        var seen = marks.load(ordering: .relaxed)
        while let wanted = change(seen) {
            let (isDone, current) = marks.weakCompareExchange(
                expected: seen, desired: wanted, ordering: .acquiringAndReleasing)
            if isDone { return seen }
            seen = current
        }
        return nil
    }

    // MARK: For the source, on the loop's thread

    /// Whether the consumer waits for the event that has come. If not, the caller must pause the source: it continues when the
    /// consumer waits.
    func beginDelivery() -> Bool {
        let before = update { $0 & Self.awaited != 0 ? $0 & ~Self.awaited : $0 | Self.paused }
        return before! & Self.awaited != 0
    }

    /// Ends `sources`, because of an error if there is one.
    func end(_ sources: [EventSource], throwing failure: Errno? = nil) {
        note(failure)
        for source in sources { source.end() }
        finish()
    }

    // MARK: From any thread

    /// Ends the events, with an error if there is one.
    func finish(throwing failure: Errno? = nil) {
        note(failure)
        guard set(Self.over) else { return }
        ended()
        gate.openFromAnywhere()
    }

    private func note(_ failure: Errno?) {
        if let failure, !isOver { self.failure.withLock { $0 = failure } }
    }

    /// Notes that the source is to end; false if that is known.
    func beginEnding() -> Bool { set(Self.ending) }

    @usableFromInline var isOver: Bool { has(Self.over) }
    var isEnding: Bool { has(Self.ending) }
    var isPaused: Bool { has(Self.paused) }

    // MARK: For the consumer

    /// Notes that the consumer waits.
    ///
    /// - Returns: Whether the source pauses, and must continue now; nil if there will be no event.
    func beginWaiting() -> Bool? {
        update { $0 & Self.over != 0 ? nil : ($0 | Self.awaited) & ~Self.paused }.map {
            $0 & Self.paused != 0
        }
    }

    /// The reason for the end, for the first that asks.
    @usableFromInline
    func takeFailure() -> Errno? { failure.withLock { $0.take() } }

    /// Makes the caller the only consumer, until ``unclaim()``.
    func claim() {
        require(
            set(Self.claimed),
            "Two tasks iterate over the same events of a run loop: only one may at a time.")
    }

    func unclaim() { marks.bitwiseAnd(~Self.claimed, ordering: .releasing) }
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

    private let events = Mutex(Events())
    private let hasEvents = Atomic(false)

    fileprivate func change(_ body: (inout Events) -> Void) {
        events.withLock { events in
            body(&events)
            hasEvents.store(events.first != nil, ordering: .releasing)
        }
    }

    /// The first event; nil for a task that has been cancelled, which leaves it to another.
    func take() -> Event? {
        guard hasEvents.load(ordering: .acquiring), !Task.isCancelled else { return nil }
        return events.withLock { events in
            let event = events.first.take()
            if !events.others.isEmpty {
                events.first = events.others.popFirst()
                // An empty slice keeps the memory of its array.
                if events.others.isEmpty { events.others = [] }
            }
            hasEvents.store(events.first != nil, ordering: .releasing)
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
        queue?.change { $0.first = event }
        signal.gate.open()
    }

    /// Appends `event`, and lets the consumer continue.
    ///
    /// - Parameter isRepeated: Whether it says no more than an event that the consumer has not taken.
    func append(_ event: Event, unless isRepeated: (Event) -> Bool = { _ in false }) {
        queue?.change { events in
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
