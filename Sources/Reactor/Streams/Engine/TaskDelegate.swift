import Synchronization
import SystemPackage

/// The delegate that stands for tasks: an event of the stream lets the task that waits continue, inside the
/// event's callback if the task belongs on that loop.
final class TaskDelegate: StreamDelegate, Sendable {
    private struct State {
        /// Where the task waits; nil before the first wait.
        var place: TaskPlace?
        var isInUse = false
        var readsAhead = false
    }

    private let state = Mutex(State())
    /// Whether the stream may have been closed, or may have no loop.
    private let isMoved = Atomic(true)

    /// Whether a task uses the stream now.
    var isInUse: Bool { state.withLock { $0.isInUse } }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) { wakeTask() }

    /// Called when the stream has been closed, has another queue or none, or other loops or modes. Any thread may
    /// call it.
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

    /// Lets the task, which is about to wait though it could go on, continue after a pass of its loop.
    func wakeTaskAfterPass() { state.withLock { $0.place }?.wakeTaskAfterPass() }

    /// Whether the task may have read bytes that it has not used yet.
    var readsAhead: Bool { state.withLock { $0.readsAhead } }

    /// Makes the caller the only user, until ``endUse()``; false if there is one.
    func beginsUse(readsAhead: Bool = false) -> Bool {
        state.withLock { state in
            if state.isInUse { return false }
            (state.isInUse, state.readsAhead) = (true, readsAhead)
            return true
        }
    }

    func endUse() { state.withLock { ($0.isInUse, $0.readsAhead) = (false, false) } }

    /// The place at which the stream's events resume the task from now on. Earlier events may have opened the gate of another
    /// place if it is new.
    func place(on loop: RunLoop, _ executor: RunLoop.Executor) -> (place: TaskPlace, isNew: Bool) {
        state.withLock { state in
            if let known = state.place, known.executor === executor { return (known, false) }
            let place = TaskPlace(on: loop, executor)
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
    let gate: Gate
    var executor: RunLoop.Executor { gate.executor }

    init(on loop: RunLoop, _ executor: RunLoop.Executor) { (self.loop, gate) = (loop, Gate(on: executor)) }

    /// Lets the task that waits continue: at once, if this is its loop's thread.
    func wakeTask() { if loop.isCurrent { gate.open() } else { gate.openFromAnywhere() } }

    /// Lets the task that waits continue after the loop's other work; at once, if it is on another thread.
    func wakeTaskAfterPass() {
        guard loop.isCurrent else { return gate.openFromAnywhere() }
        let block = PostedBlock(modes: executor.modes, isSource: true) { [gate] in gate.open() }
        loop.inbox.post(block)
    }
}

extension RunLoop {
    /// The loop and the executor that the calling task belongs to; if none, `loop` in its common modes, or the
    /// library's own thread.
    ///
    /// - Throws: `Errno.canceled` if the task belongs to a loop that has ended; what pthread_create(3) does.
    static func place(
        of isolation: (any Actor)?, orOn loop: RunLoop?
    ) throws(Errno) -> (RunLoop, Executor) {
        if let isolation, isolation === MainActor.shared, main.isCurrent { return (main, main.executor()) }
        if LoopIdentity.current.number != 0 {
            let current = RunLoop.current
            // The actor's code that computes its executor may ask the loop for it.
            let executors = current.executors.withLock { $0 }
            if let own = executors.first(where: { $0.isOwn(isolation) }) {
                if current.inbox.isClosed { throw .canceled }
                return (current, own)
            }
        }
        if LateJobs.currentExecutor?.isOwn(isolation) == true { throw .canceled }
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
}
