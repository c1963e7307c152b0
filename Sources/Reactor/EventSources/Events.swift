import Synchronization
public import SystemPackage

extension RunLoop {
    /// Events of a run loop, for `for await`.
    ///
    /// The loop serves the source in the modes that were named, and does so from the sequence's creation to
    /// its end. The task may be anywhere; one that is isolated to the main actor, on the main loop, or to an
    /// actor of the loop with an executor of the same modes, continues inside the source's callback: no other
    /// thread is involved.
    ///
    /// One task iterates at a time; a second one ends the process with a message. Breaking out of `for await`
    /// loses nothing: another iteration may continue.
    ///
    /// The source ends when the sequence and its iterator are released, when the iterating task is cancelled,
    /// and with the loop's thread. Then the sequence ends; after a cancellation it throws `CancellationError`
    /// first, unless it never throws.
    public struct Events<Element: Sendable, Failure: Error>: AsyncSequence, Sendable {
        private let subscription: EventSubscription
        /// What the source watches, as an error names it.
        private let subject: String
        /// Takes the event that has been waited for.
        private let take: @Sendable () -> Element?

        init(
            _ subscription: EventSubscription, _ subject: String, take: @escaping @Sendable () -> Element?
        ) {
            (self.subscription, self.subject, self.take) = (subscription, subject, take)
        }

        /// The events that the handlers of sources, or a timer's, yield to a continuation.
        ///
        /// - Parameter subject: As an error names the sources; nil for the first one.
        init<Fault>(
            on loop: RunLoop, inModes modes: [Mode], _ subject: String? = nil,
            of makeSources: (EventContinuation<Element>) throws(Fault) -> (
                sources: [EventSource], timer: Timer?
            )
        ) throws(Fault) {
            let (state, queue) = (SubscriptionState(on: loop, inModes: modes), EventQueue<Element>())
            let (sources, timer) = try makeSources(EventContinuation(state, queue))
            let subject = subject ?? sources.first?.subject ?? ""
            self.init(EventSubscription(to: sources, state, timer: timer), subject, take: queue.take)
        }

        /// Ends the sources on the loop's thread: now, if this is it.
        func end() { subscription.end() }

        /// Begins an iteration.
        ///
        /// - Precondition: No other is in progress.
        public func makeAsyncIterator() -> Iterator {
            Iterator(claim: EventClaim(subscription), subject, take: take)
        }

        /// Waits for one event after the other.
        public struct Iterator: AsyncIteratorProtocol {
            @usableFromInline let claim: EventClaim
            private let subject: String
            @usableFromInline let take: @Sendable () -> Element?

            fileprivate init(
                claim: EventClaim, _ subject: String, take: @escaping @Sendable () -> Element?
            ) {
                (self.claim, self.subject, self.take) = (claim, subject, take)
            }

            /// The next event; nil once the sequence has ended.
            @inlinable
            nonisolated(nonsending) public func next() async throws(Failure) -> Element? {
                try await next(isolation: #isolation)
            }

            /// The next event; nil once the sequence has ended.
            @inlinable
            public func next(isolation actor: isolated (any Actor)?) async throws(Failure) -> Element? {
                if let event = take() { return event }
                let subscription = claim.subscription
                while subscription.prepareToWait() {
                    // Returns at once if the task has been cancelled.
                    await subscription.state.parker.park(isolation: actor)
                    if let event = take() { return event }
                    if Task.isCancelled { await subscription.endAndWait(isolation: actor) }
                }
                return try end()
            }

            /// What remains to be taken after the end of the source.
            @usableFromInline
            func end() throws(Failure) -> Element? {
                if let event = take() { return event }
                claim.release()
                // A sequence that never fails has no source that does.
                if Task.isCancelled, let error = CancellationError() as? Failure { throw error }
                if let errno = claim.subscription.state.takeFailure(),
                    let error = IOError(.watch, subject, errno) as? Failure
                {
                    throw error
                }
                return nil
            }
        }
    }
}

/// The right to iterate. It ends with the iteration or with the iterator, whichever ends first.
@usableFromInline
final class EventClaim: Sendable {
    @usableFromInline let subscription: EventSubscription
    private let released = Atomic(false)

    init(_ subscription: EventSubscription) {
        self.subscription = subscription
        subscription.state.claim()
    }

    deinit { release() }

    var isReleased: Bool { released.load(ordering: .relaxed) }

    /// Leaves the events to another iteration.
    func release() { if !released.exchange(true, ordering: .relaxed) { subscription.state.unclaim() } }
}

// MARK: - Sources

extension RunLoop {
    /// The ticks of a timer of this loop, the first of them one interval from now.
    ///
    /// ```swift
    /// for await _ in RunLoop.main.ticks(every: .seconds(1)) { redraw() }
    /// ```
    ///
    /// The phase is kept. Ticks that come while none is awaited are one, the latest. From any thread.
    ///
    /// - Parameters:
    ///   - interval: The time between ticks, at least 0.1 ms.
    ///   - tolerance: How late a tick may be to share a wake-up with others; at most half the interval.
    ///   - modes: Where the timer fires: the common modes unless others are named.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    /// - Returns: The ticks' dates.
    public func ticks(
        every interval: Duration, tolerance: Duration = .zero, inModes modes: [Mode] = [.common],
        file: StaticString = #fileID, line: UInt = #line
    ) -> Events<Deadline, Never> {
        Events(on: self, inModes: modes) { continuation in
            let timer = Timer(
                interval: interval, repeats: true, tolerance: tolerance, file: file, line: line
            ) { continuation.yield($0.fireDate) { _ in true } }
            for mode in modes { add(timer, forMode: mode) }
            return ([], timer)
        }
    }

    /// The signals that the process receives, as ``SignalSource`` catches them, from now on.
    ///
    /// ```swift
    /// for try await signal in try RunLoop.main.signals([.interrupt, .terminate]) { print(signal) }
    /// ```
    ///
    /// Deliveries of a signal that come while none is awaited are one. From any thread. When the sequence
    /// ends, the signals' earlier actions are restored: in the loop's next pass if it ends on another thread.
    ///
    /// - Parameters:
    ///   - signals: The signals to catch.
    ///   - modes: Where the loop serves them: the common modes unless others are named.
    /// - Throws: ``IOError`` with an error of ``SignalSource/init(_:handler:)``. The sequence throws ``IOError``
    ///   with an error of epoll_ctl(2) if the loop cannot watch for signals, and `CancellationError`.
    public func signals(
        _ signals: [Signal], inModes modes: [Mode] = [.common]
    ) throws(IOError) -> Events<Signal, any Error> {
        try events(of: signals, inModes: modes)
    }

    /// - Parameter received: Called on the loop's thread, with the number of deliveries, before the task continues.
    func events(
        of signals: [Signal], inModes modes: [Mode],
        subscribed: (SignalSubscription) -> Void = { _ in },
        received: @escaping @Sendable (Signal, Int) -> Void = { _, _ in }
    ) throws(IOError) -> Events<Signal, any Error> {
        try Events(on: self, inModes: modes, "signals") { continuation throws(IOError) in
            var sources: [SignalSource] = []
            for signal in signals {
                let source = try SignalSource(signal) { _, count in
                    received(signal, count)
                    continuation.yield(signal) { $0 == signal }
                }
                if let subscription = source.subscription { subscribed(subscription) }
                sources.append(source)
            }
            return (sources, nil)
        }
    }

    /// What `descriptor` is ready for, each time that it is awaited while the descriptor is ready.
    ///
    /// ```swift
    /// for try await _ in loop.readiness(of: socket, for: .readable) {
    ///     let count = try socket.read(into: buffer)
    ///     if count == 0 { break }
    /// }
    /// ```
    ///
    /// As with a ``DescriptorSource``, the descriptor should not block. While no event is awaited the kernel
    /// is not asked. From any thread.
    ///
    /// - Parameters:
    ///   - descriptor: A descriptor that epoll(7) takes. It must stay open until the loop has ended the
    ///     source, which it does in its next pass if the sequence is released on another thread; a cancelled
    ///     sequence has ended it when `next` returns.
    ///   - interest: What to watch for.
    ///   - modes: Where the loop watches: the common modes unless others are named.
    /// - Returns: A sequence that throws ``IOError`` with an error of epoll_ctl(2), such as
    ///   `Errno.notPermitted` for a regular file, and `CancellationError`.
    public func readiness(
        of descriptor: FileDescriptor, for interest: Readiness, inModes modes: [Mode] = [.common]
    ) -> Events<Readiness, any Error> {
        let subscription = EventSubscription(on: self, inModes: modes, watching: descriptor, for: interest)
        return Events(
            subscription, descriptorName(descriptor.rawValue), take: subscription.state.takeReadiness)
    }
}

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
