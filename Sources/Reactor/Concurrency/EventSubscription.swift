import SystemPackage

/// A source of a loop and the task that consumes its events, which may be on any thread.
///
/// The source leaves its events where the consumer finds them, and tells the ``EventSignal`` on the loop's
/// thread. It ends when its consumer's task is cancelled, with the loop, and with the last reference to the
/// subscription: so its handler does not retain that.
///
/// Nothing here is generic: the library does not know its clients' types, and would look up their metadata
/// with each event.
final class EventSubscription: Sendable {
    let signal: EventSignal
    private let loop: RunLoop
    private let source: LoopBound<Source>

    /// What the loop's thread does with the source.
    final class Source {
        /// Has the kernel watched for what was offered in vain.
        var arm: () -> Void = {}
        var end: (() -> Void)?
    }

    /// Starts a source by calling `start` on the loop's thread: now, if this is it.
    init(on loop: RunLoop, _ signal: EventSignal, _ start: @escaping @Sendable (Source) -> Void) {
        (self.loop, self.signal) = (loop, signal)
        source = LoopBound(Source(), owner: loop.identity)
        loop.requireNotOfParent()
        let hasLoop = !loop.inbox.isClosed && loop.onLoopThread { [source] _ in start(source.value) }
        if !hasLoop { signal.finish() }
    }

    deinit { end() }

    /// Waits for an event; false once the source has ended.
    func wait(isolation: isolated (any Actor)?) async throws(Errno) -> Bool {
        while true {
            switch try signal.check() {
            case .event: return true
            case .end: return false
            case .nothing(let isDisarmed):
                if isDisarmed { loop.onLoopThread { [source] _ in source.value.arm() } }
            }
            await signal.gate.wait(isolation: isolation) { end() }
        }
    }

    /// Ends the source on the loop's thread, and then the consumer's wait.
    private func end() {
        let hasLoop = loop.onLoopThread { [source, signal] _ in
            source.value.end.take()?()
            signal.finish()
        }
        if !hasLoop { signal.finish() }
    }
}

/// Whether an event waits for the consumer, or the consumer for an event.
final class EventSignal: Sendable {
    enum Status {
        case event
        case nothing(isDisarmed: Bool)
        case end
    }

    private struct State {
        var hasEvent = false
        /// Whether the consumer waits, or is about to.
        var isAwaited = false
        var isDisarmed = false
        var isClaimed = false
        var isOver = false
        var failure: Errno?
    }

    let gate: Gate
    private let state = Mutex(State())

    /// - Parameter executor: That of the loop and the modes in which events are delivered.
    init(on executor: RunLoop.Executor) { gate = Gate(on: executor) }

    // MARK: For the source, on the loop's thread

    /// Has the consumer continue with an event, now or when it asks for one.
    func deliver() {
        state.withLock { $0.hasEvent = true }
        gate.open()
    }

    /// Has the consumer continue with an event if it waits. If not, the source must be disarmed until it
    /// does.
    func offer() -> Bool {
        let isAwaited = state.withLock { state in
            let isAwaited = state.isAwaited
            (state.isAwaited, state.isDisarmed) = (false, !isAwaited)
            state.hasEvent = state.hasEvent || isAwaited
            return isAwaited
        }
        if isAwaited { gate.open() }
        return isAwaited
    }

    // MARK: From any thread

    /// Ends the sequence, with an error if there is one.
    func finish(throwing failure: Errno? = nil) {
        let isFirst = state.withLock { state in
            guard !state.isOver else { return false }
            (state.isOver, state.failure) = (true, failure)
            return true
        }
        if isFirst { gate.openFromAnywhere() }
    }

    // MARK: For the consumer

    func check() throws(Errno) -> Status {
        let isCancelled = Task.isCancelled
        let (status, failure) = state.withLock { state -> (Status, Errno?) in
            state.isAwaited = false
            if state.hasEvent, !isCancelled {
                state.hasEvent = false
                return (.event, nil)
            }
            if state.isOver { return (.end, state.failure.take()) }
            state.isAwaited = true
            let isDisarmed = state.isDisarmed
            state.isDisarmed = false
            return (.nothing(isDisarmed: isDisarmed), nil)
        }
        if let failure { throw failure }
        return status
    }

    /// Notes that there is another event beside the one that was taken.
    func keep() { state.withLock { $0.hasEvent = true } }

    /// Makes the caller the only consumer, until ``unclaim()``.
    func claim() {
        let isFree = state.withLock { state in
            let isFree = !state.isClaimed
            state.isClaimed = true
            return isFree
        }
        require(isFree, "Two tasks iterate over the same events of a run loop: only one may at a time.")
    }

    func unclaim() { state.withLock { $0.isClaimed = false } }
}

/// Ends a signal when the handlers that capture this are released: when their source ends, as it does with
/// its loop.
final class Finisher: Sendable {
    let signal: EventSignal

    init(_ signal: EventSignal) { self.signal = signal }

    deinit { signal.finish() }
}
