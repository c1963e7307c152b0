import Reactor
import SystemPackage

/// An actor that lives on a loop and notes what its callers want.
actor Resident {
    private let executor: RunLoop.Executor
    private(set) var notes: [String] = []
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(_ executor: RunLoop.Executor) { self.executor = executor }

    var isOnLoop: Bool { executor.isIsolatingCurrentContext() == true }

    func note(_ text: String) { notes.append(text) }

    func perform<Result: Sendable>(_ work: @Sendable (isolated Resident) throws -> Result) rethrows -> Result
    {
        try work(self)
    }

    /// The number that `call` arrives at, one actor call a step.
    func count(to limit: Int, with other: Resident) async -> Int {
        limit == 0 ? 0 : await 1 + other.count(to: limit - 1, with: self)
    }
}

/// Waits for what another thread or task does, without blocking a thread of the pool.
func yieldUntil(_ condition: () -> Bool) async {
    while !condition() { await Task.yield() }
}

extension RunLoop {
    /// Runs `body` on this loop, which its thread runs: as a task that prefers the loop, isolated to an actor
    /// of it.
    func onActor<Result: Sendable>(
        _ body: @escaping @Sendable (isolated Resident) async throws -> Result
    ) async throws -> Result {
        let resident = Resident(executor())
        return try await resident.perform(body)
    }
}

extension RunLoop {
    /// Waits until the loop, which its thread runs, has done what it was asked to do.
    func waitForPass() async throws { try await onItsOwnThread { [self] in performAndWait {} } }
}

extension Resident {
    func perform<Result: Sendable>(
        _ work: @Sendable (isolated Resident) async throws -> Result
    ) async throws -> Result {
        try await work(self)
    }
}

/// What `make` returns on another thread, which has ended when this returns.
func madeElsewhere<Value: Sendable>(_ make: @escaping @Sendable () throws -> Value) throws -> Value {
    let made = Shared<Value?>(nil)
    try onAThread { made.value = try make() }
    return made.value!
}

/// What `body` throws; nil if it does not.
nonisolated(nonsending) func thrownError(
    by body: nonisolated(nonsending) () async throws -> Void
) async -> (any Error)? {
    do { try await body() } catch { return error }
    return nil
}

extension Error {
    /// The errno value of an ``IOError``.
    var errno: Errno? {
        guard let error = self as? IOError else { return nil }
        let errno: Errno = error.errno
        return errno
    }
}
