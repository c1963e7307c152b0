import Dispatch
public import Reactor

/// A transfer that a session has started. All methods may be called from any thread, at any moment.
///
/// Releasing it does not end the transfer.
public final class HTTPTransfer: Sendable {
    /// How far a transfer has come.
    public struct Progress: Sendable, Hashable {
        /// The bytes of the request's body that have been sent.
        public internal(set) var bytesSent = 0
        /// The bytes of the response's body, decoded, and with those that an earlier download has kept.
        public internal(set) var bytesReceived = 0
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
    private let session: SessionCore

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
    /// Events that have not been delivered are dropped. Called where the transfer's callbacks are called, only the
    /// completion follows.
    public func cancel() {
        outbox.dropEvents()
        session.post(.cancel(number))
    }

    /// Stops sending and receiving until ``resume()``. The connection stays open, and the idle time-out does not count.
    public func suspend() { session.post(.suspend(number, true)) }

    /// Continues after ``suspend()``.
    public func resume() { session.post(.suspend(number, false)) }
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
        var isDropping = false
        var isCompleted = false
        var hasProgress = false
        /// Whether the transfer has paused until there is room.
        var isAwaited = false
        var progress = HTTPTransfer.Progress()
        var callbacks: HTTPTransfer.Callbacks?
        var consumed: (@Sendable () -> Void)?
        /// A task that waits for the next event.
        var waiter: CheckedContinuation<Event?, Never>?
    }

    private let state: Mutex<State>
    private let delivery: HTTPDelivery
    private let group: DispatchGroup?
    let limit: Int
    private let runLoop: RunLoop
    private let modes: [RunLoop.Mode]

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
            if !state.isDropping, !state.isCompleted {
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
    func complete(_ result: Result<HTTPResponse, HTTPError>) {
        change { state in
            guard !state.isCompleted else { return }
            state.isCompleted = true
            state.consumed = nil
            state.events.append(.completion(result))
        }
    }

    private func put(_ event: Event) {
        change { if !$0.isDropping, !$0.isCompleted { $0.events.append(event) } }
    }

    /// From any thread: drops the events that have not been delivered, and those that follow, but the completion.
    func dropEvents() {
        let dropped = state.withLock { state -> [Event] in
            state.isDropping = true
            let dropped = state.events
            state.events = dropped.filter { if case .completion = $0 { true } else { false } }
            state.first = 0
            state.byteCount = 0
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
        case .queue(let queue): queue.async { [self] in deliver() }
        case .pulled: resumeWaiter()
        }
    }

    /// A loop whose thread ends drops the block: the events are then delivered by the thread that drops it.
    private func post(to runLoop: RunLoop, _ modes: [RunLoop.Mode]) {
        let job = DeliveryJob(self)
        runLoop.perform(inModes: modes) { job.run() }
    }

    /// Delivers all events, those that come meanwhile included.
    fileprivate func deliver() {
        while let event = next() { call(event) }
    }

    private func next() -> Event? {
        state.withLock { state -> Event? in
            guard state.first < state.events.count else {
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
            callbacks?.completion(result)
            // Released before the group is notified, and with nothing locked.
            let released = state.withLock { $0.callbacks.take() }
            withExtendedLifetime(released) {}
            group?.leave()
        }
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
            let released = state.withLock { $0.callbacks.take() }
            withExtendedLifetime(released) {}
        default: break
        }
        return event
    }

    private func resumeWaiter() {
        let waiting = state.withLock { state -> (CheckedContinuation<Event?, Never>, Event)? in
            guard state.first < state.events.count, let waiter = state.waiter.take() else { return nil }
            return (waiter, state.takeFirst())
        }
        waiting?.0.resume(returning: waiting?.1)
    }
}

extension Outbox.State {
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

/// A block that delivers events when it is run, or when it is dropped without having run.
private final class DeliveryJob: Sendable {
    private let outbox: Mutex<Outbox?>

    init(_ outbox: Outbox) { self.outbox = Mutex(outbox) }

    deinit { run() }

    func run() { outbox.withLock { $0.take() }?.deliver() }
}
