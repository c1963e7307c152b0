import SystemPackage

/// The events that the consumer has not taken yet.
final class EventQueue<Event: Sendable>: Sendable {
    private let events = Mutex(Queue<Event>())

    /// Puts `event` in the place of the first one that it replaces, or else behind all.
    fileprivate func put(_ event: Event, replacing isReplaced: (Event) -> Bool) {
        events.withLock { events in
            if !events.replaceFirst(with: event, where: isReplaced) { events.append(event) }
        }
    }

    /// The first event; nil for a task that has been cancelled, which leaves it to another.
    func take() -> Event? {
        events.withLock { events in
            if events.isEmpty || Task.isCancelled { return nil }
            return events.popFirst()
        }
    }
}

/// What the handlers of sources retain to deliver events. The events end when it is released: with the sources, which end with
/// their loop.
final class EventContinuation<Event: Sendable>: Sendable {
    private let state: SubscriptionState
    private let queue: EventQueue<Event>

    init(_ state: SubscriptionState, _ queue: EventQueue<Event>) { (self.state, self.queue) = (state, queue) }

    deinit { state.finish() }

    /// Puts `event` in the place of the first one that the consumer has not taken and that it replaces, or else behind all; and
    /// lets the consumer continue.
    func yield(_ event: Event, replacing isReplaced: (Event) -> Bool = { _ in false }) {
        queue.put(event, replacing: isReplaced)
        state.parker.unpark()
    }

    /// Yields an event of `source`, which pauses unless the consumer waits.
    func yield(_ event: Event, from source: EventSource) {
        if !state.beginDelivery() { try? source.changeInterest([]) }
        // Also lets a consumer continue that has seen the queue empty and is about to wait.
        yield(event)
    }

    func finish(throwing error: Errno) { state.finish(throwing: error) }
}
