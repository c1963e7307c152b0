import Synchronization
import SystemPackage

/// The delegate that stands for tasks: an event of the stream lets the task that waits continue, inside the
/// event's callback if the task belongs on that loop.
final class TaskDelegate: StreamAwaiter {
    private struct State {
        /// Where the task waits; nil before the first wait.
        var place: TaskPlace?
        var isInUse = false
    }

    private let state = Mutex(State())
    /// Whether the stream may have been closed, or may have no loop.
    private let isMoved = Atomic(true)

    var isInUse: Bool { state.withLock { $0.isInUse } }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) { wakeTask() }

    func streamChanged() {
        isMoved.store(true, ordering: .releasing)
        wakeTaskLater()
    }

    /// Lets the task continue where it waits now: at once, if that is this thread's loop.
    func wakeTask() {
        state.withLock { $0.place }?.wakeTask()
    }

    /// As ``wakeTask()``, from any thread: the task continues later.
    func wakeTaskLater() { state.withLock { $0.place }?.gate.openFromAnywhere() }

    /// Makes the caller the only user, until ``endUse()``.
    func beginUse() {
        let isFree = state.withLock { state in
            defer { state.isInUse = true }
            return !state.isInUse
        }
        precondition(isFree, "Two tasks use the same stream in the same direction: only one may at a time.")
    }

    func endUse() { state.withLock { $0.isInUse = false } }

    /// Has the stream's events let the task continue at `place` from now on; those before may have opened
    /// another gate.
    ///
    /// - Returns: `place`, or the one that is in use already if they are of the same executor.
    func use(_ place: TaskPlace) -> (place: TaskPlace, isNew: Bool) {
        state.withLock { state in
            if let known = state.place, known.executor === place.executor { return (known, false) }
            state.place = place
            return (place, true)
        }
    }

    /// Whether the stream may have been closed, or have lost its loop. Asked once for each change.
    func takeMove() -> Bool { isMoved.exchange(false, ordering: .acquiring) }
}

/// Where a task waits: the loop, the modes, and the gate that opens there.
final class TaskPlace: Sendable {
    let loop: RunLoop
    let executor: RunLoop.Executor
    let gate: Gate

    /// The place that the calling task belongs to; if none, `loop` in its common modes, or the library's own
    /// thread.
    init(of isolation: (any Actor)?, orOn loop: RunLoop?) throws(Errno) {
        (self.loop, executor) = try RunLoop.place(of: isolation, orOn: loop)
        gate = Gate(on: executor)
    }

    /// Lets the task that waits continue: at once, if this is its loop's thread.
    func wakeTask() { if loop.isCurrent { gate.open() } else { gate.openFromAnywhere() } }
}

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
        let awaiter = stream.engine.awaiter { TaskDelegate() }
        guard let delegate = awaiter as? TaskDelegate else { preconditionFailure("An unknown awaiter.") }
        self.delegate = delegate
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

extension RunLoop {
    /// The loop and the executor that the calling task belongs to; if none, `loop` in its common modes, or the
    /// library's own thread.
    fileprivate static func place(
        of isolation: (any Actor)?, orOn loop: RunLoop?
    ) throws(Errno) -> (RunLoop, Executor) {
        if let isolation, isolation === MainActor.shared, main.isCurrent { return (main, main.executor()) }
        if LoopIdentity.current.number != 0 {
            let current = RunLoop.current
            // The actor's code that computes its executor may ask the loop for it.
            let executors = current.executors.withLock { $0 }
            if let own = executors.first(where: { $0.isOwn(isolation) }) { return (current, own) }
        }
        if let loop { return (loop, loop.executor()) }
        let streams = try ResidentThread.streams.runLoop()
        return (streams, streams.executor())
    }
}

extension RunLoop.Executor {
    /// Whether this is the executor of `isolation`, or the one that the calling task prefers.
    fileprivate func isOwn(_ isolation: (any Actor)?) -> Bool {
        if let isolation, serves(isolation) { return true }
        return unsafe withUnsafeCurrentTask { task in
            unsafe task?.unownedTaskExecutor == asUnownedTaskExecutor()
        }
    }

    private func serves(_ actor: any Actor) -> Bool {
        // The first word of an executor's reference is its address.
        let address = unsafe unsafeBitCast(actor.unownedExecutor, to: (UInt, UInt).self).0
        return address == UInt(bitPattern: ObjectIdentifier(self))
    }
}
