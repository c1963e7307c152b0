import Synchronization
import SystemPackage

/// Lets the writes of a connection, which has it, take turns in the order of their calls.
struct WriteTurns: ~Copyable, Sendable {
    struct State {
        var isTaken = false
        var waiters = Queue<Waiter>()
    }

    enum Waiter {
        /// A task that waits for its turn, or only for the writes before it.
        case task(TaskWait, takesTurn: Bool)
        /// Called when it has the turn.
        case call(@Sendable () -> Void)
    }

    private let state = Mutex(State())

    /// Takes the turn if it is free.
    func takeIfFree() -> Bool {
        state.withLock { state in
            if state.isTaken { return false }
            state.isTaken = true
            return true
        }
    }

    /// Takes the turn, or has `body` called with it later. The one that has it passes it on.
    func takeOrCall(_ body: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            if !state.isTaken {
                state.isTaken = true
                return true
            }
            state.waiters.append(.call(body))
            return false
        }
    }

    /// Waits for the turn, which the caller then passes on. The parameters and errors are those of
    /// ``suspendTask(until:at:_:)``.
    nonisolated(nonsending) func take(
        until deadline: Deadline?, at place: TaskPlace
    ) async throws(Errno) {
        if takeIfFree() { return }
        try await wait(until: deadline, at: place, takesTurn: true)
    }

    /// Waits until the writes that were called before have ended. The parameters and errors are those of
    /// ``suspendTask(until:at:_:)``.
    nonisolated(nonsending) func waitForWrites(
        until deadline: Deadline?, at place: TaskPlace
    ) async throws(Errno) {
        guard state.withLock({ $0.isTaken }) else { return }
        try await wait(until: deadline, at: place, takesTurn: false)
    }

    nonisolated(nonsending) private func wait(
        until deadline: Deadline?, at place: TaskPlace, takesTurn: Bool
    ) async throws(Errno) {
        do throws(Errno) {
            try await suspendTask(until: deadline, at: place) { wait in
                // With the lock, so that the turn is not taken for a task that has given up.
                state.withLock { state in
                    if state.isTaken { return state.waiters.append(.task(wait, takesTurn: takesTurn)) }
                    state.isTaken = wait.end() && takesTurn
                }
            }
        } catch {
            state.withLock { $0.waiters.removeAll { $0.hasGivenUp } }
            throw error
        }
    }

    /// Passes the turn on to the write that has waited longest, and lets the flushes before it continue.
    func pass() { passLater()?() }

    /// Passes the turn on as ``pass()``, and returns what the caller calls with nothing locked.
    func passLater() -> (@Sendable () -> Void)? {
        while let waiter = next() {
            switch waiter {
            case .call(let body): return body
            // A task that has given up does not take the turn.
            case .task(let wait, let takesTurn): if wait.end(), takesTurn { return nil }
            }
        }
        return nil
    }

    /// Takes the first waiter; nil, and the turn is free, if there is none.
    private func next() -> Waiter? {
        state.withLock { state in
            let waiter = state.waiters.popFirst()
            state.isTaken = waiter != nil
            return waiter
        }
    }
}

extension WriteTurns.Waiter {
    fileprivate var hasGivenUp: Bool { if case .task(let wait, _) = self { wait.hasEnded } else { false } }
}

/// Suspends the task until the callback that `register` is called with has been called. The other parameters and the errors are
/// those of ``suspendTask(until:at:_:)``.
nonisolated(nonsending) func waitForFlush(
    until deadline: Deadline?, at place: TaskPlace, _ register: (FlushCallback) -> Void
) async throws(Errno) {
    var callback: FlushCallback?
    defer { callback?.cancel() }
    try await suspendTask(until: deadline, at: place) { wait in
        let new = FlushCallback { wait.end() }
        callback = new
        register(new)
    }
}
