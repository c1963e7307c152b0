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
        case task(AsyncPromise<Errno?>, takesTurn: Bool)
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

    /// Waits for the turn, which the caller then passes on.
    ///
    /// - Parameters:
    ///   - deadline: When to give up; nil for never.
    ///   - loop: Whose time that is.
    /// - Throws: `Errno.timedOut`, `Errno.canceled`.
    nonisolated(nonsending) func take(until deadline: Deadline?, on loop: RunLoop) async throws(Errno) {
        if takeIfFree() { return }
        try await wait(until: deadline, on: loop, takesTurn: true)
    }

    /// Waits until the writes that were called before have ended. The parameters and errors are those of ``take(until:on:)``.
    nonisolated(nonsending) func waitForWrites(until deadline: Deadline?, on loop: RunLoop)
        async throws(Errno)
    {
        guard state.withLock({ $0.isTaken }) else { return }
        try await wait(until: deadline, on: loop, takesTurn: false)
    }

    nonisolated(nonsending) private func wait(
        until deadline: Deadline?, on loop: RunLoop, takesTurn: Bool
    ) async throws(Errno) {
        do throws(Errno) {
            try await suspendTask(until: deadline, on: loop) { promise in
                // With the lock, so that the turn is not taken for a task that has given up.
                state.withLock { state in
                    if state.isTaken { return state.waiters.append(.task(promise, takesTurn: takesTurn)) }
                    state.isTaken = promise.set(nil) && takesTurn
                }
            }
        } catch {
            state.withLock { $0.waiters.removeAll { $0.hasGivenUp } }
            throw error
        }
    }

    /// Passes the turn on to the write that has waited longest, and lets the flushes before it continue.
    func pass() {
        while let waiter = next() {
            switch waiter {
            case .call(let body): return body()
            // A task that has given up does not take the turn.
            case .task(let promise, let takesTurn): if promise.set(nil), takesTurn { return }
            }
        }
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
    fileprivate var hasGivenUp: Bool { if case .task(let promise, _) = self { promise.isSet } else { false } }
}

/// Suspends the task until the kernel has taken the bytes that `engine` has accepted, or the output has failed or is closed.
nonisolated(nonsending) func waitForFlush(
    of engine: StreamEngine, until deadline: Deadline?, on loop: RunLoop
) async throws(Errno) {
    var callback: FlushCallback?
    defer { callback?.cancel() }
    try await suspendTask(until: deadline, on: loop) { promise in
        let new = FlushCallback { promise.set(nil) }
        callback = new
        engine.backend.whenFlushed(new)
    }
}

/// Suspends the task until the promise that `begin` is called with is set: to nil, or to an error.
///
/// - Parameters:
///   - deadline: When to give up; nil for never.
///   - loop: Whose time that is.
/// - Throws: The promise's error; `Errno.timedOut`, `Errno.canceled`.
nonisolated(nonsending) func suspendTask(
    until deadline: Deadline?, on loop: RunLoop, _ begin: (AsyncPromise<Errno?>) -> Void
) async throws(Errno) {
    let promise = AsyncPromise<Errno?>()
    let timer = deadline.map { Timer(fireDate: $0, of: loop) { _ in promise.set(.timedOut) } }
    if let timer { loop.add(timer, forMode: .common) }
    defer { timer?.invalidate() }
    let failure = await withTaskCancellationHandler {
        begin(promise)
        if let deadline, deadline <= loop.now { promise.set(.timedOut) }
        return await promise.wait()
    } onCancel: {
        promise.set(.canceled)
    }
    if let failure { throw failure }
}
