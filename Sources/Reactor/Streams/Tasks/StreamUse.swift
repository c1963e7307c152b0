/// A task's use of a stream, from its beginning to its release: an operation, or an iteration.
///
/// It opens the stream, keeps it alive, and is its only user in one direction.
final class StreamUse {
    let stream: Stream
    private let delegate: UnparkingDelegate
    private let timeout: Duration?
    /// What ends an iteration when it begins.
    private let shutdown: GracefulShutdown?
    private var observation: GracefulShutdown.Observation?
    /// When ``timeout`` is over, from the first wait on.
    private var deadline: Deadline?
    private var parker: TaskParker?
    private var timer: UnparkTimer?
    /// The transfers since the task was last to wait, with those of the uses before it in the same pass of a loop.
    private var transfers: Int

    /// For one operation. Fails if another task uses the stream: that may depend on the peer, and is no mistake to end the
    /// process for.
    convenience init(_ stream: Stream, timeout: Duration? = nil, readsAhead: Bool = false) throws {
        let delegate = stream.engine.taskDelegate()
        guard let transfers = delegate.beginUse(readsAhead: readsAhead) else {
            throw stream.engine.failure(.resourceBusy)
        }
        self.init(stream, delegate, timeout, nil, transfers)
    }

    /// For an iteration, which begins without being able to fail. The timeout is that of each element: see ``endElement()``.
    /// The iteration asks whether it ``isOver``.
    ///
    /// - Precondition: No other task reads the stream.
    convenience init(
        iterating stream: InputStream, timeout: Duration?, shutdown: GracefulShutdown?, readsAhead: Bool
    ) {
        let delegate = stream.engine.taskDelegate()
        guard let transfers = delegate.beginUse(readsAhead: readsAhead) else {
            fatalError("Two tasks read the same stream: only one may at a time.")
        }
        self.init(stream, delegate, timeout, shutdown, transfers)
    }

    private init(
        _ stream: Stream, _ delegate: UnparkingDelegate, _ timeout: Duration?, _ shutdown: GracefulShutdown?,
        _ transfers: Int
    ) {
        (self.stream, self.delegate, self.timeout, self.shutdown) = (stream, delegate, timeout, shutdown)
        self.transfers = transfers
        stream.open()
    }

    /// Whether the iteration's shutdown has begun.
    var isOver: Bool { shutdown?.hasBegun ?? false }

    deinit { delegate.endUse(transfers: transfers) }

    /// Whether the task may move bytes before it waits. 8 transfers per event on the loop's thread, so that its other work is
    /// not delayed; 64 elsewhere, where an event costs a thread switch.
    private var mayTransfer: Bool { transfers < 8 || (transfers < 64 && parker?.loop.isCurrent == false) }

    /// Calls `body`, which moves bytes without waiting, unless the task has to wait first because it has moved
    /// bytes many times: then its loop makes a pass, and its deadline is looked at.
    ///
    /// - Returns: What `body` returns; nil if the task has to wait.
    func transfer<Result>(_ body: () throws -> Result?) throws -> Result? {
        guard mayTransfer else {
            transfers = 0
            return nil
        }
        try Task.checkCancellation()
        let result = try body()
        transfers = result == nil ? 0 : transfers + 1
        return result
    }

    /// Begins the timeout anew: the iteration has an element.
    func endElement() {
        guard deadline != nil else { return }
        deadline = nil
        timer = nil
    }

    /// Forces a wait before the next transfer, which would move nothing.
    func waitBeforeNextTransfer() { transfers = .max }

    /// The first result of `now`, which does not wait. As often as it has none, the task waits for the stream's next event.
    ///
    /// - Parameter prepare: Called before each wait. Another thread may resume the task through the delegate.
    func next<Result>(
        isolation: isolated (any Actor)?, preparing prepare: ((UnparkingDelegate) -> Void)? = nil,
        _ now: () throws -> Result?
    ) async throws -> Result {
        while true {
            let isDelayed = !mayTransfer
            if let result = try transfer(now) { return result }
            let parker = try parker(isolation)
            prepare?(delegate)
            if isDelayed { delegate.unparkTaskAfterPass() }
            await parker.park(isolation: isolation)
        }
    }

    /// What to park the task at: the stream's next event, the deadline, the shutdown and the task's cancellation unpark it.
    func parker(_ isolation: (any Actor)?) throws -> TaskParker {
        let parker = try findParker(isolation)
        if let timeout { try limitWait(to: timeout, at: parker) }
        stream.engine.noteWait()
        return parker
    }

    private func limitWait(to timeout: Duration, at parker: TaskParker) throws {
        // Where the stream's events arrive.
        let place = stream.engine.scheduledPlace
        let now = (place?.loop ?? parker.loop).now
        let deadline = deadline ?? now + timeout
        self.deadline = deadline
        guard deadline > now else { throw stream.engine.failure(.waitTimedOut) }
        if timer == nil { timer = UnparkTimer(deadline, at: parker, on: place) }
    }

    private func findParker(_ isolation: (any Actor)?) throws -> TaskParker {
        if !delegate.takeMove(), let parker { return parker }
        do throws(Errno) {
            let place = try RunLoop.place(of: isolation, orOn: stream.engine.scheduledPlace?.loop)
            let parker = delegate.parker(on: place.loop, place.executor)
            self.parker = parker
            timer = nil
            observation = shutdown?.observe { parker.unparkLater() }
            stream.engine.scheduleForTask(on: place.loop, place.executor.modes)
            return parker
        } catch .canceled {
            throw CancellationError()
        } catch {
            throw stream.engine.failure(error)
        }
    }

    /// Waits until the stream is open.
    func waitUntilOpen(isolation: isolated (any Actor)?) async throws {
        try await next(isolation: isolation) { try stream.engine.isOpening() ? nil : () }
    }
}
