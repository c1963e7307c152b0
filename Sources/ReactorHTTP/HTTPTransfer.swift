import Dispatch
public import Reactor

import struct Synchronization.Atomic

/// A transfer that a session has started. All methods may be called from any thread, at any moment.
///
/// Releasing it does not end the transfer.
public final class HTTPTransfer: Sendable {
    /// How far a transfer has come.
    public struct Progress: Sendable, Hashable {
        /// The bytes of the request's body that have been sent. A redirect or a retry that sends it again counts from 0.
        public internal(set) var bytesSent = 0
        /// The bytes of the response's body, decoded, and with those of ``bytesResumed``.
        public internal(set) var bytesReceived = 0
        /// How many of the received bytes an earlier attempt or download had kept.
        public internal(set) var bytesResumed = 0
        /// How many bytes of the response's body there will be; nil if that is not known, or if it is compressed.
        public internal(set) var bytesExpected: Int?
    }

    /// What to call with the transfer's events.
    struct Callbacks: Sendable {
        var event: (@Sendable (HTTPEvent) -> Void)?
        var progress: (@Sendable (Progress) -> Void)?
        var completion: @Sendable (Result<HTTPResponse, HTTPError>) -> Void
    }

    /// The request that was started.
    public let request: HTTPRequest
    /// When it was started.
    public let startDate = Deadline.now

    let number: UInt64
    let outbox: Outbox
    let session: SessionCore
    let phase = Mutex(Phase.started)
    private let suspension = Atomic(false)

    init(
        _ request: HTTPRequest, number: UInt64, in session: SessionCore, delivery: HTTPDelivery,
        group: DispatchGroup?, _ makeCallbacks: (HTTPTransfer) -> Callbacks
    ) {
        self.request = request
        self.number = number
        self.session = session
        outbox = Outbox(delivery, group, limit: session.configuration.bytesInFlight, in: session)
        outbox.begin(makeCallbacks(self)) { [session, number] in session.post(.resume(number)) }
    }

    /// How far the transfer has come.
    public var progress: Progress { outbox.progress }

    /// Ends the transfer with ``HTTPError/Kind/cancelled``, unless it has ended already.
    ///
    /// Events that have not been delivered are dropped, and a transfer whose head or bytes are dropped does not succeed. If
    /// this is called where the transfer's callbacks are called, no callback but the completion follows.
    public func cancel() {
        outbox.dropEvents(HTTPError(.cancelled, request))
        session.post(.cancel(number))
    }

    /// Stops sending and receiving until ``resume()``. A transfer that has not begun does not begin. The connection stays
    /// open, and the idle time-out does not count.
    public func suspend() { suspension.store(true, ordering: .relaxed) }

    /// Continues after ``suspend()``.
    public func resume() {
        // The idle time-out of a transfer that is not suspended goes on.
        if suspension.exchange(false, ordering: .relaxed) { session.post(.resume(number)) }
    }

    var isSuspended: Bool { suspension.load(ordering: .relaxed) }
}

/// The events of one transfer on their way from the session's loop to the callbacks.
///
/// They are delivered in order, one at a time, by one job at a time; a job that runs the loop does not let another begin.
final class Outbox: Sendable {
    enum Event: Sendable {
        case event(HTTPEvent)
        case progress
        case completion(Result<HTTPResponse, HTTPError>)
    }

    struct State {
        var events: [Event] = []
        /// The index of the first event that has not been taken.
        var first = 0
        /// The number of bytes in events, the one that is being delivered included.
        var byteCount = 0
        /// The memory of pieces that have been consumed and that nothing else refers to.
        var spares: [[UInt8]] = []
        /// Whether a job that delivers events is scheduled or under way.
        var isDelivering = false
        /// Whether a callback is being called.
        var isCalling = false
        /// The error of a transfer whose events are dropped because it has been cancelled.
        var cancellation: HTTPError?
        /// Whether the head or bytes have been dropped.
        var hasDropped = false
        var isCompleted = false
        var hasProgress = false
        /// Whether the transfer has paused until there is room.
        var isAwaited = false
        var progress = HTTPTransfer.Progress()
        var callbacks: HTTPTransfer.Callbacks?
        /// Called before the completion.
        var closing: (@Sendable () -> Void)?
        var consumed: (@Sendable () -> Void)?
        /// A task that waits for the next event.
        var waiter: CheckedContinuation<Event?, Never>?
    }

    /// How many bytes, and how many events, one job delivers: about a millisecond's work, after which the loop or the
    /// queue serves what else is due.
    private static let byteLimit = 1 << 20
    private static let eventLimit = 256

    let state: Mutex<State>
    let delivery: HTTPDelivery
    private let group: DispatchGroup?
    let limit: Int
    let runLoop: RunLoop
    let modes: [RunLoop.Mode]

    init(
        _ delivery: HTTPDelivery, _ group: DispatchGroup?, limit: Int, in session: SessionCore
    ) {
        state = Mutex(State())
        self.delivery = delivery
        self.group = group
        self.limit = max(limit, 1)
        (runLoop, modes) = (session.runLoop, session.modes)
        group?.enter()
    }

    /// Sets the callbacks, which are released after the completion, and what is called when there is room again.
    func begin(_ callbacks: HTTPTransfer.Callbacks, whenConsumed action: @escaping @Sendable () -> Void) {
        state.withLock { ($0.callbacks, $0.consumed) = (callbacks, action) }
    }

    var progress: HTTPTransfer.Progress { state.withLock { $0.progress } }

    /// The number of bytes that wait. If there is no room for more beside `count` others, the transfer is told when there
    /// is.
    func awaitRoom(beside count: Int) -> Int {
        state.withLock { state in
            state.isAwaited = state.byteCount + count >= limit
            return state.byteCount
        }
    }

    // MARK: From the session's loop

    func put(_ response: HTTPResponse) { put(.event(.response(response))) }

    /// Adds pieces of the body with `count` bytes. Returns how many bytes wait, and memory for further pieces.
    func put(_ pieces: [[UInt8]], _ count: Int) -> (waiting: Int, spares: [[UInt8]]) {
        change { state in
            if state.accepts() {
                state.byteCount += count
                for piece in pieces { state.events.append(.event(.bytes(piece))) }
            }
            let spares = state.spares
            state.spares = []
            return (state.byteCount, spares)
        }
    }

    /// Updates the progress; it is reported once for all updates that have come before the report.
    func update(_ change: @Sendable (inout HTTPTransfer.Progress) -> Void) {
        let isReported = state.withLock { state in
            change(&state.progress)
            guard state.callbacks?.progress != nil, !state.hasProgress else { return false }
            state.hasProgress = true
            return true
        }
        if isReported { put(.progress) }
    }

    /// Adds the last event. A second completion is ignored.
    ///
    /// - Parameter closing: Called before the completion, in the same place.
    func complete(
        _ result: Result<HTTPResponse, HTTPError>, closing: (@Sendable () -> Void)? = nil
    ) {
        change { state in
            guard !state.isCompleted else { return }
            state.isCompleted = true
            state.consumed = nil
            state.closing = closing
            state.events.append(.completion(state.result(result)))
        }
    }

    private func put(_ event: Event) {
        change { state in
            if case .progress = event, state.cancellation != nil { return }
            if state.accepts() { state.events.append(event) }
        }
    }

    /// From any thread: drops the events that have not been delivered, and those that follow, but the completion.
    func dropEvents(_ error: HTTPError) {
        let dropped = state.withLock { state -> [Event] in
            state.cancellation = error
            let dropped = state.events
            (state.events, state.first, state.byteCount) = ([], 0, 0)
            for event in dropped {
                switch event {
                case .event: state.hasDropped = true
                case .completion(let result): state.events.append(.completion(state.result(result)))
                case .progress: break
                }
            }
            return dropped
        }
        withExtendedLifetime(dropped) {}
    }

    private func change<Answer: Sendable>(_ change: (inout State) -> Answer) -> Answer {
        let (answer, isNeeded) = state.withLock { state in
            let answer = change(&state)
            let isNeeded = state.first < state.events.count && !state.isDelivering
            if isNeeded { state.isDelivering = true }
            return (answer, isNeeded)
        }
        if isNeeded { schedule() }
        return answer
    }

    // MARK: Delivery

    private func schedule() {
        switch delivery.kind {
        case .session: post(to: runLoop, modes)
        case .runLoop(let runLoop, let modes): post(to: runLoop, modes)
        case .queue(let queue): DispatchWorkers.run(on: queue) { [self] in deliver() }
        case .pulled: resumeWaiter()
        }
    }

    private func post(to runLoop: RunLoop, _ modes: [RunLoop.Mode]) {
        let job = DeliveryJob(self)
        runLoop.perform(inModes: modes) { job.run() }
    }

    /// Delivers events, those that come meanwhile included, up to the limits of a job.
    fileprivate func deliver() {
        var (byteCount, eventCount) = (0, 0)
        while let event = next() {
            if case .event(.bytes(let bytes)) = event { byteCount += bytes.count }
            eventCount += 1
            call(event)
            if byteCount >= Self.byteLimit || eventCount >= Self.eventLimit {
                state.withLock { $0.isCalling = false }
                return schedule()
            }
        }
    }

    private func next() -> Event? {
        state.withLock { state -> Event? in
            state.isCalling = state.first < state.events.count
            guard state.isCalling else {
                state.isDelivering = false
                return nil
            }
            return state.takeFirst()
        }
    }

    private func call(_ event: consuming Event) {
        let callbacks = state.withLock { $0.callbacks }
        switch consume event {
        case .event(let event):
            callbacks?.event?(event)
            if case .bytes(let bytes) = consume event { recycle(bytes) }
        case .progress:
            callbacks?.progress?(state.withLock { $0.takeProgress() })
        case .completion(let result):
            close()
            callbacks?.completion(result)
            // Released before the group is notified, and with nothing locked.
            let released = state.withLock { $0.callbacks.take() }
            withExtendedLifetime(released) {}
            group?.leave()
        }
    }

    private func close() {
        let closing = state.withLock { $0.closing.take() }
        closing?()
    }

    private func recycle(_ bytes: consuming [UInt8]) {
        let count = bytes.count
        // Allocates if the client has kept the bytes, as a new piece would.
        bytes.removeAll(keepingCapacity: true)
        let spare = bytes
        consumed(count, spare)
    }

    /// Counts bytes that have been delivered, and resumes the transfer once half of the room is free.
    private func consumed(_ count: Int, _ spare: [UInt8]? = nil) {
        let action = state.withLock { state -> (@Sendable () -> Void)? in
            state.byteCount = max(state.byteCount - count, 0)
            if let spare, !state.isCompleted { state.spares.append(spare) }
            guard state.isAwaited, state.byteCount <= limit / 2 else { return nil }
            state.isAwaited = false
            return state.consumed
        }
        action?()
    }

    // MARK: A task that takes the events itself

    /// The next event; nil after the completion. Only one task may wait.
    nonisolated(nonsending) func take() async -> Event? {
        let event = await withCheckedContinuation { waiter in
            let event = state.withLock { state -> Event?? in
                if state.first < state.events.count { return .some(state.takeFirst()) }
                if state.callbacks == nil { return .some(nil) }
                state.waiter = waiter
                state.isDelivering = false
                return nil
            }
            if let event { waiter.resume(returning: event) }
        }
        switch event {
        case .event(.bytes(let bytes)): consumed(bytes.count)
        case .progress: _ = state.withLock { $0.takeProgress() }
        case .completion:
            close()
            let released = state.withLock { $0.callbacks.take() }
            withExtendedLifetime(released) {}
        default: break
        }
        return event
    }

    private func resumeWaiter() {
        let waiting = state.withLock { state -> (CheckedContinuation<Event?, Never>, Event)? in
            guard state.first < state.events.count else {
                // They have been dropped meanwhile. The next event resumes the task.
                state.isDelivering = false
                return nil
            }
            guard let waiter = state.waiter.take() else { return nil }
            return (waiter, state.takeFirst())
        }
        waiting?.0.resume(returning: waiting?.1)
    }
}

extension Outbox.State {
    /// Whether the head or bytes are delivered.
    fileprivate mutating func accepts() -> Bool {
        if cancellation != nil { hasDropped = true }
        return cancellation == nil && !isCompleted
    }

    /// How the transfer has ended: not with success if what belongs to the success has been dropped.
    fileprivate func result(_ result: Result<HTTPResponse, HTTPError>) -> Result<HTTPResponse, HTTPError> {
        guard let cancellation, hasDropped, case .success = result else { return result }
        return .failure(cancellation)
    }

    fileprivate mutating func takeFirst() -> Outbox.Event {
        let event = events[first]
        events[first] = .progress  // releases the bytes
        first += 1
        if first == events.count {
            events.removeAll(keepingCapacity: true)
            first = 0
        }
        return event
    }

    fileprivate mutating func takeProgress() -> HTTPTransfer.Progress {
        hasProgress = false
        return progress
    }
}

/// A block that delivers events when it is run.
///
/// A loop whose thread ends drops its blocks. A global queue then delivers the events, and not the thread that drops the
/// block: that may be inside libcurl, or hold the client's locks.
private final class DeliveryJob: Sendable {
    private let outbox: Mutex<Outbox?>

    init(_ outbox: Outbox) { self.outbox = Mutex(outbox) }

    deinit {
        guard let outbox = outbox.withLock({ $0.take() }) else { return }
        DispatchWorkers.run { outbox.deliver() }
    }

    func run() { outbox.withLock { $0.take() }?.deliver() }
}
