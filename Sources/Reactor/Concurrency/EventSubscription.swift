/// A source of a loop and the task that consumes its events, which may be on any thread.
///
/// The source hands events to the ``EventDelivery`` on the loop's thread. It ends when its consumer's task is
/// cancelled, with the loop, and with the last reference to the subscription: so its handler does not retain
/// that.
final class EventSubscription<Element: Sendable, Failure: Error>: Sendable {
    let delivery: EventDelivery<Element, Failure>
    private let loop: RunLoop
    private let source: LoopBound<Source>

    /// What the loop's thread does with the source.
    final class Source {
        /// Has the kernel watched for what was offered in vain.
        var arm: () -> Void = {}
        var end: (() -> Void)?
    }

    /// Starts a source by calling `start` on the loop's thread: now, if this is it.
    init(
        on loop: RunLoop, _ delivery: EventDelivery<Element, Failure>,
        _ start: @escaping @Sendable (Source) -> Void
    ) {
        (self.loop, self.delivery) = (loop, delivery)
        source = LoopBound(Source(), home: loop.identity)
        loop.assertNotOfParent()
        let hasLoop = !loop.inbox.isClosed && loop.atHome { [source] _ in start(source.value) }
        if !hasLoop { delivery.finish() }
    }

    deinit { end() }

    /// Waits for an element; nil once the source has ended.
    nonisolated(nonsending) func next() async throws(Failure) -> Element? {
        while true {
            switch try delivery.take() {
            case .element(let element): return element
            case .end: return nil
            case .nothing(let isDisarmed): if isDisarmed { loop.atHome { [source] _ in source.value.arm() } }
            }
            await withTaskCancellationHandler {
                await delivery.gate.wait()
            } onCancel: {
                end()
            }
        }
    }

    /// Ends the source on the loop's thread, and then the consumer's wait.
    private func end() {
        let hasLoop = loop.atHome { [source, delivery] _ in
            source.value.end.take()?()
            delivery.finish()
        }
        if !hasLoop { delivery.finish() }
    }
}

/// The events that wait for their consumer.
final class EventDelivery<Element: Sendable, Failure: Error>: Sendable {
    enum Next {
        case element(Element)
        case nothing(isDisarmed: Bool)
        case end
    }

    private struct State: Sendable {
        var pending: [Element] = []
        /// Whether the consumer waits, or is about to.
        var isAwaited = false
        var isDisarmed = false
        var isClaimed = false
        var isOver = false
        var failure: Failure?
    }

    let gate: Gate
    private let state = Mutex(State())

    /// - Parameter executor: That of the loop and the modes in which events are delivered.
    init(on executor: RunLoop.Executor) { gate = Gate(on: executor) }

    // MARK: For the source, on the loop's thread

    /// Changes what waits for the consumer, and has it continue.
    func deliver(_ change: @Sendable (inout [Element]) -> Void) {
        state.withLock { change(&$0.pending) }
        gate.open()
    }

    /// Hands over `element` if the consumer waits. If not, the source must be disarmed until it does.
    func offer(_ element: Element) -> Bool {
        let isAwaited = state.withLock { state in
            state.isDisarmed = !state.isAwaited
            guard state.isAwaited else { return false }
            state.isAwaited = false
            state.pending.append(element)
            return true
        }
        if isAwaited { gate.open() }
        return isAwaited
    }

    // MARK: From any thread

    /// Ends the sequence after what waits, with an error if there is one.
    func finish(throwing failure: Failure? = nil) {
        let isFirst = state.withLock { state in
            guard !state.isOver else { return false }
            (state.isOver, state.failure) = (true, failure)
            return true
        }
        if isFirst { gate.openFromAnywhere() }
    }

    // MARK: For the consumer

    func take() throws(Failure) -> Next {
        let (next, failure) = state.withLock { state -> (Next, Failure?) in
            state.isAwaited = false
            if !state.pending.isEmpty, !Task.isCancelled {
                return (.element(state.pending.removeFirst()), nil)
            }
            if state.isOver { return (.end, state.failure.take()) }
            state.isAwaited = true
            defer { state.isDisarmed = false }
            return (.nothing(isDisarmed: state.isDisarmed), nil)
        }
        if let failure { throw failure }
        return next
    }

    /// Makes the caller the only consumer, until ``unclaim()``.
    func claim() {
        let isFree = state.withLock { state in
            defer { state.isClaimed = true }
            return !state.isClaimed
        }
        precondition(isFree, "Two tasks iterate over the same events of a run loop: only one may at a time.")
    }

    func unclaim() { state.withLock { $0.isClaimed = false } }
}

/// Ends a delivery when the handlers that capture this are released: when their source ends, as it does with
/// its loop.
final class Finisher<Element: Sendable, Failure: Error>: Sendable {
    let delivery: EventDelivery<Element, Failure>

    init(_ delivery: EventDelivery<Element, Failure>) { self.delivery = delivery }

    deinit { delivery.finish() }
}
