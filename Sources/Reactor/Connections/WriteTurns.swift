import Synchronization
import SystemPackage

/// Lets the writes of a connection, which has it, take turns in the order of their calls.
struct WriteTurns: ~Copyable, Sendable {
    struct State {
        var isTaken = false
        var waiters: [Waiter] = []
        var nextID = 0
    }

    struct Waiter {
        let id: Int
        let continuation: CheckedContinuation<Errno?, Never>
    }

    private let state = Mutex(State())

    /// Takes a turn that no other write has, nor waits for.
    func takeIfFree() -> Bool {
        state.withLock { state in
            if state.isTaken { return false }
            state.isTaken = true
            return true
        }
    }

    /// Waits for the turn, which the caller then passes on.
    ///
    /// - Parameters:
    ///   - deadline: When to give up; nil for never.
    ///   - loop: Whose time that is.
    ///   - connection: Whose turns these are.
    /// - Throws: `Errno.timedOut`, `Errno.canceled`.
    nonisolated(nonsending) func take(
        until deadline: Deadline?, on loop: RunLoop, of connection: Connection
    ) async throws(Errno) {
        if takeIfFree() { return }
        let id = state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
        let timer = deadline.map { deadline in
            Timer(fireDate: deadline, of: loop) { [weak connection] _ in connection?.turns.end(id, .timedOut)
            }
        }
        if let timer { loop.add(timer, forMode: .common) }
        defer { timer?.invalidate() }
        let failure = await withTaskCancellationHandler {
            await withCheckedContinuation { waiter in
                wait(Waiter(id: id, continuation: waiter))
                // What comes before the waiter is there ends nothing.
                if Task.isCancelled { end(id, .canceled) }
                if let deadline, deadline <= loop.now { end(id, .timedOut) }
            }
        } onCancel: {
            connection.turns.end(id, .canceled)
        }
        if let failure { throw failure }
    }

    /// Passes the turn on to the write that has waited longest.
    func pass() {
        let next = state.withLock { state -> Waiter? in
            guard !state.waiters.isEmpty else {
                state.isTaken = false
                return nil
            }
            return state.waiters.removeFirst()
        }
        next?.continuation.resume(returning: nil)
    }

    private func wait(_ waiter: Waiter) {
        let hasTurn = state.withLock { state in
            let hasTurn = !state.isTaken
            if hasTurn { state.isTaken = true } else { state.waiters.append(waiter) }
            return hasTurn
        }
        if hasTurn { waiter.continuation.resume(returning: nil) }
    }

    private func end(_ id: Int, _ reason: Errno) {
        let waiter = state.withLock { state in
            state.waiters.firstIndex { $0.id == id }.map { state.waiters.remove(at: $0) }
        }
        waiter?.continuation.resume(returning: reason)
    }
}
