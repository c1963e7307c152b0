import Dispatch
import Reactor

/// The events of one transfer on their way from the session's loop to the callbacks.
///
/// They are delivered in order, one at a time, by one job at a time; a job that runs the loop does not let another begin.
final class Outbox: Sendable {
    enum Event: Sendable {
        case event(HTTPEvent)
        case progress
        case completion(Result<HTTPTransfer.Response, HTTPError>)
    }

    struct State {
        var events = Queue<Event>()
        /// How much memory the pieces of the body take, the one that is being delivered included.
        var memory = 0
        /// Whether a job that delivers events is scheduled or running.
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
    /// Large enough to amortize the cost of each, and small enough for malloc(3) not to map each.
    static let pieceSize = 98_304

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

    /// How much memory the waiting pieces take. If there is no room for more beside `memory` of others, the transfer is
    /// resumed when there is.
    func awaitRoom(beside memory: Int) -> Int {
        state.withLock { state in
            state.isAwaited = state.memory + memory >= limit
            return state.memory
        }
    }

    // MARK: From the session's loop

    func put(_ response: HTTPTransfer.Response) { put(.event(.response(response))) }

    /// Adds pieces of the body. Returns how much memory the waiting pieces take.
    func put(_ pieces: [[UInt8]]) -> Int {
        change { state in
            guard state.accepts() else { return state.memory }
            for piece in pieces { state.memory += state.events.append(piece) }
            return state.memory
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
        _ result: Result<HTTPTransfer.Response, HTTPError>, closing: (@Sendable () -> Void)? = nil
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
        let dropped = state.withLock { state -> Queue<Event> in
            state.cancellation = error
            var dropped = Queue<Event>()
            swap(&dropped, &state.events)
            state.memory = 0
            for index in 0..<dropped.count {
                switch dropped[index] {
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
            let isNeeded = !state.events.isEmpty && !state.isDelivering
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
            let event = state.events.popFirst()
            state.isCalling = event != nil
            if event == nil { state.isDelivering = false }
            return event
        }
    }

    private func call(_ event: consuming Event) {
        let callbacks = state.withLock { $0.callbacks }
        switch consume event {
        case .event(let event):
            callbacks?.event?(event)
            if case .bytes(let bytes) = consume event { consumed(bytes.memory) }
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

    /// Counts memory as free whose bytes have been delivered, and resumes the transfer once half of the room is free.
    private func consumed(_ memory: Int) {
        let action = state.withLock { state -> (@Sendable () -> Void)? in
            state.memory = max(state.memory - memory, 0)
            guard state.isAwaited, state.memory <= limit / 2 else { return nil }
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
                if let event = state.events.popFirst() { return .some(event) }
                if state.callbacks == nil { return .some(nil) }
                state.waiter = waiter
                state.isDelivering = false
                return nil
            }
            if let event { waiter.resume(returning: event) }
        }
        switch event {
        case .event(.bytes(let bytes)): consumed(bytes.memory)
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
            guard !state.events.isEmpty else {
                // They have been dropped meanwhile. The next event resumes the task.
                state.isDelivering = false
                return nil
            }
            guard let waiter = state.waiter.take() else { return nil }
            return state.events.popFirst().map { (waiter, $0) }
        }
        waiting?.0.resume(returning: waiting?.1)
    }
}

extension [UInt8] {
    /// How much memory a piece takes. A whole one counts as its size, though malloc(3) rounds that up to pages.
    var memory: Int {
        let pageSize = 4096
        return capacity <= Outbox.pieceSize + pageSize ? Swift.min(capacity, Outbox.pieceSize) : capacity
    }
}

extension Outbox.State {
    /// Whether the head or bytes are delivered.
    fileprivate mutating func accepts() -> Bool {
        if cancellation != nil { hasDropped = true }
        return cancellation == nil && !isCompleted
    }

    /// How the transfer has ended: not with success if what belongs to the success has been dropped.
    fileprivate func result(_ result: Result<HTTPTransfer.Response, HTTPError>) -> Result<
        HTTPTransfer.Response, HTTPError
    > {
        guard let cancellation, hasDropped, case .success = result else { return result }
        return .failure(cancellation)
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

extension Queue where Element == Outbox.Event {
    /// Adds bytes of the body: to the last piece, if they fit there. Returns how much more memory the pieces take.
    ///
    /// So a server that drips, and a consumer that is behind, do not make a piece of each byte.
    mutating func append(_ piece: [UInt8]) -> Int {
        guard case .event(.bytes(var joined))? = last, joined.count + piece.count <= Outbox.pieceSize else {
            append(.event(.bytes(piece)))
            return piece.memory
        }
        removeLast()  // `joined` is then the only reference, so it is not copied
        let before = joined.memory
        joined.append(contentsOf: piece)
        append(.event(.bytes(joined)))
        return joined.memory - before
    }
}
