import Synchronization
import SystemPackage

/// A source of a loop and the task that consumes its events, which may be on any thread.
///
/// The source leaves its events where the consumer finds them, and tells the ``EventSignal`` on the loop's
/// thread. It ends when its consumer's task is cancelled, with the loop, and with the last reference to the
/// subscription: so its handler does not retain that.
///
/// Nothing here is generic: the library does not know its clients' types, and would look up their metadata
/// with each event. The generic part is inlined into the client.
@usableFromInline
final class EventSubscription: Sendable {
    @usableFromInline let signal: EventSignal
    let loop: RunLoop
    private let source: LoopBound<Source>
    /// Whether the client must keep a descriptor open until the source has ended.
    private let isWatchingDescriptor: Bool
    private let ended: @Sendable () -> Void

    /// What the loop's thread does with the source.
    ///
    /// Any thread may release it last. Until the source starts, its closures capture only what is `Sendable`;
    /// afterwards the loop's thread releases them, unless it has ended.
    final class Source {
        /// Creates the source; nil once it has been called.
        fileprivate var start: (@Sendable (Source) -> Void)?
        /// Arms the source, if it is not armed.
        var arm: (() -> Void)?
        var end: (() -> Void)?

        fileprivate init(_ start: @escaping @Sendable (Source) -> Void) { self.start = start }

        /// Brings the source to the state that the consumer wants, whatever was done before. So it does not
        /// matter in which order this thread's updates and those that other threads have posted are made.
        ///
        /// - Parameter isLoopEnding: Whether the loop, which then takes no source, is about to end with its thread.
        fileprivate func update(for signal: EventSignal, isLoopEnding: Bool, _ ended: () -> Void) {
            guard signal.isEnding || isLoopEnding else {
                start.take()?(self)
                if !signal.isDisarmed { arm?() }
                return
            }
            (start, arm) = (nil, nil)
            end.take()?()
            ended()
            signal.finish()
        }
    }

    /// Starts a source by calling `start` on the loop's thread: now, if this is it.
    ///
    /// - Parameter ended: Called when the source has ended because this has, or never starts. May be called
    ///   more than once.
    init(
        on loop: RunLoop, _ signal: EventSignal, isWatchingDescriptor: Bool = false,
        ended: @escaping @Sendable () -> Void = {}, _ start: @escaping @Sendable (Source) -> Void
    ) {
        (self.loop, self.signal, self.isWatchingDescriptor) = (loop, signal, isWatchingDescriptor)
        self.ended = ended
        source = LoopBound(Source(start), owner: loop.identity)
        loop.requireNotOfParent()
        if loop.inbox.isClosed { signal.finish() } else { update() }
    }

    deinit { end() }

    /// Lets the source deliver an event; false if it has ended.
    @usableFromInline
    func prepareToWait() -> Bool {
        if signal.isOver { return false }
        if signal.beginWaiting() { update() }
        return true
    }

    /// Ends the source because the consumer's task was cancelled. Returns once the client may close the
    /// descriptor that the source watches; at once, if it watches none.
    @usableFromInline
    func endAndWait(isolation: isolated (any Actor)?) async {
        end()
        if !isWatchingDescriptor { signal.finish() }
        while !signal.isOver { await signal.gate.waitIgnoringCancellation(isolation: isolation) }
    }

    /// Ends the source on the loop's thread: now, if this is it.
    func end() {
        guard signal.beginEnding() else { return }
        if !update() { ended() }
    }

    /// Has the loop's thread update the source. False if that thread has ended.
    @discardableResult
    private func update() -> Bool {
        // A descriptor that another thread has closed must leave the pollers before another one with the same
        // number is registered.
        if !signal.isEnding, loop.isCurrent { loop.core.drainInbox() }
        let hasLoop = loop.runOnLoopThread { [source, signal, ended] core in
            source.value.update(for: signal, isLoopEnding: core.inbox.isClosed, ended)
        }
        if !hasLoop { signal.finish() }
        return hasLoop
    }
}

extension EventSubscription {
    /// Watches `descriptor`, once the consumer waits.
    ///
    /// - Parameters:
    ///   - ready: Leaves the event.
    ///   - ended: As for ``init(on:_:isWatchingDescriptor:ended:_:)``: the loop does not watch any more.
    convenience init(
        on loop: RunLoop, inModes modes: [RunLoop.Mode], watching descriptor: FileDescriptor,
        for interest: Readiness, ready: @escaping @Sendable (Readiness) -> Void = { _ in },
        ended: @escaping @Sendable () -> Void = {}
    ) {
        let signal = EventSignal(on: loop.executor(inModes: modes), isDisarmed: true)
        self.init(on: loop, signal, isWatchingDescriptor: true, ended: ended) { source in
            let finisher = Finisher(signal)
            let events = DescriptorSource(descriptor, for: []) { events, readiness in
                guard finisher.signal.beginDelivery() else {
                    try? events.setInterest([])
                    return
                }
                ready(readiness)
                finisher.signal.deliver()
            }
            source.end = { events.cancel() }
            source.arm = {
                do throws(Errno) { try events.setInterest(interest) } catch { signal.finish(throwing: error) }
            }
            loop.add(events, inModes: modes, or: signal)
        }
    }
}

extension RunLoop {
    func add(_ source: EventSource, inModes modes: [Mode], or signal: EventSignal) {
        do throws(Errno) {
            for mode in modes { try add(source, forMode: mode) }
        } catch {
            signal.finish(throwing: error)
        }
    }
}

/// Whether the consumer waits for an event, and whether there will be one.
@usableFromInline
final class EventSignal: Sendable {
    private struct State: OptionSet {
        var rawValue: UInt8

        /// The consumer waits, or is about to.
        static let awaited = State(rawValue: 1)
        /// The source waits for the consumer.
        static let disarmed = State(rawValue: 2)
        static let over = State(rawValue: 4)
        static let claimed = State(rawValue: 8)
        /// The source is to end.
        static let ending = State(rawValue: 16)
    }

    @usableFromInline let gate: Gate
    private let state: Atomic<UInt8>
    private let failure = Mutex<Errno?>(nil)

    /// - Parameters:
    ///   - executor: That of the loop and the modes in which events are delivered.
    ///   - isDisarmed: Whether the source begins when the consumer waits for the first time.
    init(on executor: RunLoop.Executor, isDisarmed: Bool = false) {
        gate = Gate(on: executor)
        state = Atomic(isDisarmed ? State.disarmed.rawValue : 0)
    }

    /// Returns the flags before the change.
    private func update(_ change: (State) -> State) -> State {
        var seen = state.load(ordering: .relaxed)
        while true {
            let wanted = change(State(rawValue: seen)).rawValue
            let (isDone, current) = state.weakCompareExchange(
                expected: seen, desired: wanted, ordering: .acquiringAndReleasing)
            if isDone { return State(rawValue: seen) }
            seen = current
        }
    }

    // MARK: For the source, on the loop's thread

    /// Has the consumer continue with the event that the source has left for it, now or when it asks.
    func deliver() { gate.open() }

    /// Whether the consumer waits for the event that has come. If not, the caller must disarm the source: it is
    /// armed again when the consumer waits.
    func beginDelivery() -> Bool {
        update { $0.contains(.awaited) ? $0.subtracting(.awaited) : $0.union(.disarmed) }.contains(.awaited)
    }

    // MARK: From any thread

    /// Ends the sequence, with an error if there is one.
    func finish(throwing failure: Errno? = nil) {
        if let failure { self.failure.withLock { if !isOver { $0 = failure } } }
        let before = update { $0.union(.over) }
        if !before.contains(.over) { gate.openFromAnywhere() }
    }

    /// Notes that the source is to end; false if that is known.
    func beginEnding() -> Bool { !update { $0.union(.ending) }.contains(.ending) }

    var isOver: Bool { has(.over) }
    var isEnding: Bool { has(.ending) }
    fileprivate var isDisarmed: Bool { has(.disarmed) }

    private func has(_ flag: State) -> Bool {
        State(rawValue: state.load(ordering: .acquiring)).contains(flag)
    }

    // MARK: For the consumer

    /// Notes that the consumer waits. Returns whether the source must be armed again.
    func beginWaiting() -> Bool {
        update { $0.subtracting(.disarmed).union(.awaited) }.contains(.disarmed)
    }

    /// The reason for the end, for the first that asks.
    @usableFromInline
    func takeFailure() -> Errno? { failure.withLock { $0.take() } }

    /// Makes the caller the only consumer, until ``unclaim()``.
    func claim() {
        require(
            !update { $0.union(.claimed) }.contains(.claimed),
            "Two tasks iterate over the same events of a run loop: only one may at a time.")
    }

    func unclaim() { _ = update { $0.subtracting(.claimed) } }
}

/// Ends a signal when the handlers that capture this are released: when their source ends, as it does with
/// its loop.
final class Finisher: Sendable {
    let signal: EventSignal

    init(_ signal: EventSignal) { self.signal = signal }

    deinit { signal.finish() }
}
