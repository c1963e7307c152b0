import Synchronization
import SystemPackage

/// Lets the writes of a connection, which has it, take turns in the order of their calls, and its flushes wait beside them.
struct WriteTurns: ~Copyable, Sendable {
    struct State {
        var isTaken = false
        /// What waits for its turn.
        var waiters: [Waiter] = []
        var flushes: [Waiter] = []
        var nextID = 0

        mutating func remove(_ id: Int) -> Waiter? {
            if let index = waiters.firstIndex(where: { $0.id == id }) { return waiters.remove(at: index) }
            return flushes.firstIndex { $0.id == id }.map { flushes.remove(at: $0) }
        }
    }

    struct Waiter {
        let id: Int
        /// Whether it is to have the turn, and not only to come after the writes before it.
        let takesTurn: Bool
        /// Called with nil when it is the waiter's turn, or with why that will not be.
        let resume: @Sendable (Errno?) -> Void
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
            state.waiters.append(Waiter(id: 0, takesTurn: true) { _ in body() })
            return false
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
        try await wait(newID(), until: deadline, on: loop, of: connection) { id, resume in
            queue(Waiter(id: id, takesTurn: true, resume: resume))
        }
    }

    /// Waits until the writes that were called before have ended. The parameters and errors are those of
    /// ``take(until:on:of:)``.
    nonisolated(nonsending) func waitForWrites(
        until deadline: Deadline?, on loop: RunLoop, of connection: Connection
    ) async throws(Errno) {
        guard state.withLock({ $0.isTaken }) else { return }
        try await wait(newID(), until: deadline, on: loop, of: connection) { id, resume in
            queue(Waiter(id: id, takesTurn: false, resume: resume))
        }
    }

    /// Waits until the kernel has taken the bytes that were accepted before, or the connection has ended. The parameters and
    /// errors are those of ``take(until:on:of:)``.
    nonisolated(nonsending) func waitForFlush(
        until deadline: Deadline?, on loop: RunLoop, of connection: Connection
    ) async throws(Errno) {
        let id = newID()
        let callback = FlushCallback { connection.turns.end(id, nil) }
        defer { callback.cancel() }
        try await wait(id, until: deadline, on: loop, of: connection) { id, resume in
            let waiter = Waiter(id: id, takesTurn: false, resume: resume)
            state.withLock { $0.flushes.append(waiter) }
            connection.halves.output.engine.backend.whenFlushed(callback)
        }
    }

    /// Lets the flushes that wait find out that the connection was closed.
    func endFlushes() {
        let ended = state.withLock { state in
            defer { state.flushes = [] }
            return state.flushes
        }
        for waiter in ended { waiter.resume(nil) }
    }

    private func newID() -> Int {
        state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
    }

    nonisolated(nonsending) private func wait(
        _ id: Int, until deadline: Deadline?, on loop: RunLoop, of connection: Connection,
        _ begin: (Int, @escaping @Sendable (Errno?) -> Void) -> Void
    ) async throws(Errno) {
        try await suspendTask(until: deadline, on: loop) { continuation in
            begin(id) { continuation.resume(returning: $0) }
        } end: { [weak connection] reason in
            connection?.turns.end(id, reason)
        }
    }

    /// Passes the turn on to the write that has waited longest, and lets the flushes before it continue.
    func pass() {
        let next = state.withLock { state -> ArraySlice<Waiter> in
            guard !state.waiters.isEmpty else {
                state.isTaken = false
                return []
            }
            let writer = state.waiters.firstIndex { $0.takesTurn }
            state.isTaken = writer != nil
            let count = writer.map { $0 + 1 } ?? state.waiters.count
            defer { state.waiters.removeFirst(count) }
            return state.waiters.prefix(count)
        }
        for waiter in next { waiter.resume(nil) }
    }

    private func queue(_ waiter: Waiter) {
        let isFree = state.withLock { state in
            let isFree = !state.isTaken
            if isFree { state.isTaken = waiter.takesTurn } else { state.waiters.append(waiter) }
            return isFree
        }
        if isFree { waiter.resume(nil) }
    }

    private func end(_ id: Int, _ reason: Errno?) {
        let waiter = state.withLock { $0.remove(id) }
        waiter?.resume(reason)
    }
}

/// Suspends the task until the continuation that `begin` is called with is resumed: with an error, or with nil.
///
/// - Parameters:
///   - deadline: When to give up; nil for never.
///   - loop: Whose time that is.
///   - end: Resumes the continuation, unless it has been, with `Errno.timedOut` or `Errno.canceled`. Any thread.
nonisolated(nonsending) func suspendTask(
    until deadline: Deadline?, on loop: RunLoop, _ begin: (CheckedContinuation<Errno?, Never>) -> Void,
    end: @escaping @Sendable (Errno) -> Void
) async throws(Errno) {
    let timer = deadline.map { deadline in Timer(fireDate: deadline, of: loop) { _ in end(.timedOut) } }
    if let timer { loop.add(timer, forMode: .common) }
    defer { timer?.invalidate() }
    let failure = await withTaskCancellationHandler {
        await withCheckedContinuation { continuation in
            begin(continuation)
            // A cancellation or a timeout before the waiter was queued found nothing to end.
            if Task.isCancelled { end(.canceled) }
            if let deadline, deadline <= loop.now { end(.timedOut) }
        }
    } onCancel: {
        end(.canceled)
    }
    if let failure { throw failure }
}
