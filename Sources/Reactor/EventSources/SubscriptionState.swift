import Synchronization
import SystemPackage

/// What the consumer of events and their source tell each other: whether the consumer waits, and whether there will be more.
@usableFromInline
final class SubscriptionState: Sendable {
    private struct State {
        /// A task consumes the events.
        var isClaimed = false
        /// The consumer waits, or is about to.
        var isAwaited = false
        /// The source waits for the consumer.
        var isPaused: Bool
        /// The source is to end.
        var isEnding = false
        /// There will be no more events.
        var isOver = false
        var failure: Errno?
        /// The attempts to take an element on a loop's thread since its last poll.
        var attempts = 0
        var poll = Poll.unknown
    }

    /// When the consumer may try to take an element without waiting.
    enum Turn {
        case now
        /// After the loop's other work.
        case afterPass
        /// There is no further one.
        case never
    }

    /// How many elements a task takes in one pass of its loop: as many as a source of the loop.
    private static let mostAttempts = 32

    @usableFromInline let parker: TaskParker
    private let state: Mutex<State>
    /// What the awaited descriptor is ready for, until the consumer takes it.
    private let readiness = Atomic<Readiness.RawValue>(0)
    private let ended: @Sendable () -> Void

    /// - Parameters:
    ///   - modes: Where the loop delivers events.
    ///   - isPaused: Whether the source begins when the consumer waits for the first time.
    ///   - ended: Called when the source has ended.
    init(
        on loop: RunLoop, inModes modes: [RunLoop.Mode], isPaused: Bool = false,
        ended: @escaping @Sendable () -> Void = {}
    ) {
        parker = TaskParker(on: loop, loop.executor(inModes: modes))
        state = Mutex(State(isPaused: isPaused))
        self.ended = ended
    }

    // MARK: For the source, on the loop's thread

    /// Whether the consumer waits for the event that has come. If not, the caller must pause the source: it continues when the
    /// consumer waits.
    func beginDelivery() -> Bool {
        state.withLock { state in
            if !state.isAwaited { state.isPaused = true }
            return exchange(&state.isAwaited, with: false)
        }
    }

    /// Resumes the consumer, because the awaited descriptor is ready.
    func deliver(_ readiness: Readiness) {
        self.readiness.store(readiness.rawValue, ordering: .releasing)
        parker.unpark()
    }

    /// Ends `sources`, because of an error if there is one.
    func end(_ sources: [EventSource], throwing failure: Errno? = nil) {
        note(failure)
        for source in sources { source.cancel() }
        finish()
    }

    /// Leaves it to the next wait of the consumer to try again what has failed with `failure`.
    func pause(throwing failure: Errno) {
        state.withLock { state in
            state.isPaused = true
            if !state.isOver { state.failure = failure }
        }
        parker.unparkLater()
    }

    // MARK: From any thread

    /// Ends the events, with an error if there is one.
    func finish(throwing failure: Errno? = nil) {
        note(failure)
        guard state.withLock({ !exchange(&$0.isOver, with: true) }) else { return }
        ended()
        parker.unparkLater()
    }

    private func note(_ failure: Errno?) {
        guard let failure else { return }
        state.withLock { if !$0.isOver { $0.failure = failure } }
    }

    /// Notes that the source is to end; false if that is known.
    func beginEnding() -> Bool { state.withLock { !exchange(&$0.isEnding, with: true) } }

    @usableFromInline var isOver: Bool { state.withLock { $0.isOver } }
    var isEnding: Bool { state.withLock { $0.isEnding } }
    var isPaused: Bool { state.withLock { $0.isPaused } }

    // MARK: For the consumer

    /// Notes that the consumer tries to take an element, unless it has done that often in this pass of its thread's loop.
    func beginTaking() -> Turn {
        state.withLock { state in
            if state.isEnding || state.isOver { return .never }
            if state.poll == .unknown || state.poll != .last { (state.attempts, state.poll) = (0, .last) }
            if state.attempts == Self.mostAttempts { return .afterPass }
            state.attempts += 1
            return .now
        }
    }

    /// Notes that the consumer waits.
    ///
    /// - Returns: Whether the source pauses, and must continue now; nil if there will be no event.
    func beginWaiting() -> Bool? {
        state.withLock { state in
            if state.isOver { return nil }
            state.isAwaited = true
            return exchange(&state.isPaused, with: false)
        }
    }

    /// What the descriptor is ready for; nil for a task that has been cancelled, which leaves it to another.
    func takeReadiness() -> Readiness? {
        guard readiness.load(ordering: .acquiring) != 0, !Task.isCancelled else { return nil }
        return Readiness(rawValue: readiness.exchange(0, ordering: .relaxed))
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
