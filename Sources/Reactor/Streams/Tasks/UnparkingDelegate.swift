import Synchronization
import SystemPackage

/// The delegate that stands for tasks: an event of the stream unparks the task that waits, which continues inside the event's
/// callback if it belongs on that loop.
final class UnparkingDelegate: StreamDelegate, Sendable {
    private struct State {
        /// Where the task waits; nil before the first wait.
        var parker: TaskParker?
        var isInUse = false
        var readsAhead = false
        /// The transfers of the uses that have ended, on a loop's thread since its last poll.
        var transfers = 0
        var poll = Poll.unknown
    }

    private let state = Mutex(State())
    /// Whether the stream may have been closed, or may have no loop.
    private let isMoved = Atomic(true)

    private var parker: TaskParker? { state.withLock { $0.parker } }

    /// Whether a task uses the stream now.
    var isInUse: Bool { state.withLock { $0.isInUse } }

    /// Whether a task waits for the stream's next event.
    var isWaiting: Bool { parker?.isParked ?? false }

    /// Whether the task may have read bytes that it has not used yet.
    var readsAhead: Bool { state.withLock { $0.readsAhead } }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) { parker?.unpark() }

    /// Called when the stream has been closed, has another queue or none, or other loops or modes. Any thread may
    /// call it.
    func streamChanged() {
        isMoved.store(true, ordering: .releasing)
        unparkTaskLater()
    }

    /// Resumes the task later. From any thread.
    func unparkTaskLater() { parker?.unparkLater() }

    /// Resumes the task, which is about to wait, after the next pass of its loop.
    func unparkTaskAfterPass() { parker?.unparkAfterPass() }

    /// Makes the caller the only user, until ``endUse(transfers:)``.
    ///
    /// - Returns: How many transfers earlier uses have made in this pass of the calling thread's loop; nil if there is a user.
    func beginUse(readsAhead: Bool = false) -> Int? {
        state.withLock { state in
            if state.isInUse { return nil }
            (state.isInUse, state.readsAhead) = (true, readsAhead)
            return state.poll != .unknown && state.poll == .last ? state.transfers : 0
        }
    }

    func endUse(transfers: Int) {
        state.withLock { state in
            (state.isInUse, state.readsAhead) = (false, false)
            (state.transfers, state.poll) = (transfers, .last)
        }
    }

    /// Where the stream's events unpark the task from now on. A new one has a permit, because earlier events may have come to
    /// the one before it, or to none.
    func parker(on loop: RunLoop, _ executor: RunLoop.Executor) -> TaskParker {
        state.withLock { state in
            if let known = state.parker, known.executor === executor { return known }
            let parker = TaskParker(on: loop, executor, hasPermit: true)
            state.parker = parker
            return parker
        }
    }

    /// Whether the stream may have been closed, or have lost its loop. Asked once for each change.
    func takeMove() -> Bool { isMoved.exchange(false, ordering: .acquiring) }
}

extension RunLoop {
    /// Where the calling task waits: on its own loop; if it has none, `loop` in its common modes, or the
    /// library's own thread.
    ///
    /// - Throws: `Errno.canceled` if the task belongs to a loop that has ended; what pthread_create(3) does.
    static func place(
        of isolation: (any Actor)?, orOn loop: RunLoop?
    ) throws(Errno) -> TaskPlace {
        if let isolation, isolation === MainActor.shared, main.isCurrent {
            return TaskPlace(loop: main, executor: main.executor())
        }
        if LoopIdentity.current.number != 0 {
            let current = RunLoop.current
            // The actor's code that computes its executor may ask the loop for it.
            let executors = current.executors.withLock { $0 }
            if let own = executors.first(where: { $0.isOwn(isolation) }) {
                if current.inbox.isClosed { throw .canceled }
                return TaskPlace(loop: current, executor: own)
            }
        }
        if LateJobs.currentExecutor?.isOwn(isolation) == true { throw .canceled }
        if let loop { return TaskPlace(loop: loop, executor: loop.executor()) }
        let streams = try ResidentThread.streams.runLoop()
        return TaskPlace(loop: streams, executor: streams.executor())
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
