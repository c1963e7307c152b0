/// A task's use of a stream, from its beginning to its release: an operation, or an iteration.
///
/// It opens the stream, keeps it alive, and is its only user in one direction.
final class StreamUse {
    let stream: Stream
    private let delegate: TaskDelegate
    private let deadline: Deadline?
    private var place: TaskPlace?
    private var timer: GateTimer?

    /// - Precondition: No other task uses the stream, and it has no delegate.
    init(_ stream: Stream, timeout: Duration? = nil) {
        self.stream = stream
        deadline = timeout.map { .now.advanced(by: $0) }
        delegate = stream.engine.taskDelegate()
        delegate.beginUse()
        stream.open()
    }

    deinit { delegate.endUse() }

    /// Whether the task runs on the thread of the loop that it waits on.
    var isOnLoop: Bool { place?.loop.isCurrent ?? true }

    /// Waits for the stream's next event, or until another thread wakes the task through the delegate that
    /// `prepare` receives.
    ///
    /// An event may have come before: then this returns at once, so callers try again, and wait again.
    ///
    /// - Parameter isScheduled: Whether the stream needs a loop for its events.
    func wait(
        isolation: isolated (any Actor)?, isScheduled: Bool = true,
        _ prepare: ((TaskDelegate) -> Void)? = nil
    ) async throws {
        guard let gate = try gate(isolation, isScheduled: isScheduled) else { return }
        prepare?(delegate)
        await gate.wait(isolation: isolation)
        try Task.checkCancellation()
    }

    /// The gate to wait at: the task's cancellation opens it too. Nil if something may have happened already.
    func gate(_ isolation: (any Actor)?, isScheduled: Bool = true) throws -> Gate? {
        guard let place = try findPlace(isolation, isScheduled: isScheduled) else { return nil }
        if let deadline {
            guard deadline > .now else { throw stream.engine.failure(.timedOut) }
            startTimer(until: deadline, place)
        }
        return place.gate
    }

    /// Waits until the stream is open.
    func waitUntilOpen(isolation: isolated (any Actor)?) async throws {
        try Task.checkCancellation()
        while try stream.engine.isOpening() { try await wait(isolation: isolation) }
    }

    /// Where to wait; nil if something may have happened before this was found out.
    private func findPlace(
        _ isolation: (any Actor)?, isScheduled: Bool
    ) throws -> TaskPlace? {
        let isMoved = delegate.takeMove()
        if !isMoved, let place { return place }
        do throws(Errno) {
            let scheduled = stream.engine.scheduledPlace?.loop
            let (place, isNew) = delegate.use(try TaskPlace(of: isolation, orOn: scheduled))
            self.place = place
            timer = nil
            if isScheduled { stream.engine.scheduleForTask(on: place.loop, place.executor.modes) }
            return isMoved || isNew ? nil : place
        } catch {
            throw stream.engine.failure(error)
        }
    }

    /// Notices the deadline where the stream's events arrive.
    private func startTimer(until deadline: Deadline, _ place: TaskPlace) {
        guard timer == nil else { return }
        let (loop, modes) = stream.engine.scheduledPlace ?? (place.loop, place.executor.modes)
        timer = GateTimer(deadline, on: loop, in: modes) { [delegate] in delegate.wakeTask() }
    }
}
