import Synchronization

/// The end of a program, or of a part of it, that leaves its work time to finish: see
/// ``RunLoop/withGracefulShutdown(on:grace:_:)``.
///
/// Iterate over messages with it (``Connection/messages(_:timeout:shutdown:)``), and put other waits into
/// ``cancelWhenBegun(_:)``: they can be cut short. Work that finishes by itself needs no call: it has the grace.
public final class GracefulShutdown: Sendable {
    private struct State {
        var hasBegun = false
        var handlers: [Int: @Sendable () -> Void] = [:]
        var lastNumber = 0
    }

    @TaskLocal static var inherited: GracefulShutdown?
    private let state = Mutex(State())

    init() {}

    /// The innermost one whose body the current task belongs to; nil outside of all, and in detached tasks.
    public static var current: GracefulShutdown? { inherited }

    /// Whether a signal has arrived, or ``begin()`` was called. It stays true.
    public var hasBegun: Bool { state.withLock { $0.hasBegun } }

    /// Begins the shutdown, as a signal does, but reports nothing to the service manager. Further calls change nothing. Any
    /// thread.
    public func begin() {
        let handlers = state.withLock { state in
            state.hasBegun = true
            return exchange(&state.handlers, with: [:])
        }
        for (_, handler) in handlers.sorted(by: { $0.key < $1.key }) { handler() }
    }

    /// Waits until the shutdown begins; for servers with a delegate, a task calls ``Listener/drain()`` after it.
    ///
    /// - Throws: `CancellationError`.
    nonisolated(nonsending) public func waitUntilBegun() async throws {
        let promise = AsyncPromise<Void>()
        let observation = observe { promise.set(()) }
        await withTaskCancellationHandler {
            await promise.wait()
        } onCancel: {
            promise.set(())
        }
        withExtendedLifetime(observation) {}
        if !hasBegun { throw CancellationError() }
    }

    /// Runs `operation`, and cancels it when the shutdown begins: for a wait between two messages. An iteration ends by itself,
    /// if it was given the shutdown: see ``Connection/messages(_:timeout:shutdown:)``.
    ///
    /// ```swift
    /// while let line = try await shutdown.cancelWhenBegun({ try await connection.read(until: [10]) }) {
    ///     try await connection.write(line)
    /// }
    /// ```
    ///
    /// Returns only after `operation` has. If the shutdown has begun before, it is cancelled from its beginning.
    ///
    /// - Parameter operation: A child task, with the isolation of the calling code.
    /// - Returns: What `operation` returns.
    /// - Throws: What `operation` throws.
    nonisolated(nonsending) public func cancelWhenBegun<Success: Sendable>(
        @_inheritActorContext _ operation: @escaping @Sendable () async throws -> Success
    ) async throws -> Success {
        try await withTaskCancelled(
            fromBeginning: hasBegun, when: { try? await self.waitUntilBegun() }, operation)
    }

    /// Calls `handler` when the shutdown begins: at once, if it has. Once the observation has ended, only
    /// if another thread is calling it already.
    func observe(_ handler: @escaping @Sendable () -> Void) -> Observation {
        let number = state.withLock { state -> Int? in
            guard !state.hasBegun else { return nil }
            state.lastNumber += 1
            state.handlers[state.lastNumber] = handler
            return state.lastNumber
        }
        if number == nil { handler() }
        return Observation(of: self, number)
    }

    private func removeHandler(_ number: Int) {
        let dropped = state.withLock { $0.handlers.removeValue(forKey: number) }
        withExtendedLifetime(dropped) {}
    }

    /// A handler that is to be called. It is removed when this is released.
    final class Observation: Sendable {
        private let shutdown: GracefulShutdown
        private let number: Int?

        fileprivate init(of shutdown: GracefulShutdown, _ number: Int?) {
            (self.shutdown, self.number) = (shutdown, number)
        }

        deinit { if let number { shutdown.removeHandler(number) } }
    }
}
