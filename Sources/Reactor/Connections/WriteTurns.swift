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
        let continuation: CheckedContinuation<Errno?, Never>
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
        try await wait(newID(), until: deadline, on: loop, of: connection) { id, continuation in
            queue(Waiter(id: id, takesTurn: true, continuation: continuation))
        }
    }

    /// Waits until the writes that were called before have ended. The parameters and errors are those of
    /// ``take(until:on:of:)``.
    nonisolated(nonsending) func waitForWrites(
        until deadline: Deadline?, on loop: RunLoop, of connection: Connection
    ) async throws(Errno) {
        guard state.withLock({ $0.isTaken }) else { return }
        try await wait(newID(), until: deadline, on: loop, of: connection) { id, continuation in
            queue(Waiter(id: id, takesTurn: false, continuation: continuation))
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
        try await wait(id, until: deadline, on: loop, of: connection) { id, continuation in
            let waiter = Waiter(id: id, takesTurn: false, continuation: continuation)
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
        for waiter in ended { waiter.continuation.resume(returning: nil) }
    }

    private func newID() -> Int {
        state.withLock { state in
            state.nextID += 1
            return state.nextID
        }
    }

    nonisolated(nonsending) private func wait(
        _ id: Int, until deadline: Deadline?, on loop: RunLoop, of connection: Connection,
        _ begin: (Int, CheckedContinuation<Errno?, Never>) -> Void
    ) async throws(Errno) {
        let timer = deadline.map { deadline in
            Timer(fireDate: deadline, of: loop) { [weak connection] _ in connection?.turns.end(id, .timedOut)
            }
        }
        if let timer { loop.add(timer, forMode: .common) }
        defer { timer?.invalidate() }
        let failure = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                begin(id, continuation)
                // A cancellation or a timeout before the waiter was queued found nothing to end.
                if Task.isCancelled { end(id, .canceled) }
                if let deadline, deadline <= loop.now { end(id, .timedOut) }
            }
        } onCancel: {
            connection.turns.end(id, .canceled)
        }
        if let failure { throw failure }
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
        for waiter in next { waiter.continuation.resume(returning: nil) }
    }

    private func queue(_ waiter: Waiter) {
        let isFree = state.withLock { state in
            let isFree = !state.isTaken
            if isFree { state.isTaken = waiter.takesTurn } else { state.waiters.append(waiter) }
            return isFree
        }
        if isFree { waiter.continuation.resume(returning: nil) }
    }

    private func end(_ id: Int, _ reason: Errno?) {
        let waiter = state.withLock { $0.remove(id) }
        waiter?.continuation.resume(returning: reason)
    }
}
