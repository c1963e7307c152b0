import Glibc
import Reactor
import SystemPackage
import Testing

/// A thread that runs a loop until this is released.
final class LoopThread: Sendable {
    let thread: RunLoopThread
    var loop: RunLoop { thread.runLoop }
    var executor: RunLoop.Executor { thread.executor }

    init() {
        do { thread = try RunLoopThread(name: "test loop") } catch {
            fatalError("A thread for a test cannot be started: \(error)")
        }
    }

    deinit { thread.stop() }
}

/// An actor that lives on a loop.
actor Resident {
    let executor: RunLoop.Executor
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(_ executor: RunLoop.Executor) { self.executor = executor }

    func perform<Result: Sendable>(
        _ body: nonisolated(nonsending) @Sendable () async throws -> Result
    ) async rethrows -> Result {
        try await body()
    }
}

/// An actor of no loop.
actor TurnTaker {
    private var hasBegun = false

    func perform<Result: Sendable>(
        _ body: nonisolated(nonsending) @Sendable () async throws -> Result
    ) async throws -> Result {
        hasBegun = true
        return try await body()
    }

    private func isSuspended() -> Bool { hasBegun }

    /// Waits until the body has begun, and has suspended: before that the actor takes no other call.
    nonisolated func waitUntilSuspended() async {
        while !(await isSuspended()) { await Task.yield() }
    }
}

/// Where a task runs.
enum TaskPlace: String, CaseIterable, Sendable {
    case loopActor, loopPreference, pool, mainActor

    /// Runs `body` there. The loop that it is called with runs meanwhile.
    func run<Result: Sendable>(
        _ body: nonisolated(nonsending) @escaping @Sendable (RunLoop) async throws -> Result
    ) async throws -> Result {
        let home = LoopThread()
        let loop = self == .mainActor ? .main : home.loop
        defer { withExtendedLifetime(home) {} }
        return try await start(on: home.loop) { try await body(loop) }.value
    }

    /// Starts `body` there.
    func start<Result: Sendable>(
        on loop: RunLoop, _ body: nonisolated(nonsending) @escaping @Sendable () async throws -> Result
    ) -> Task<Result, any Error> {
        switch self {
        case .loopActor: Task { try await Resident(loop.executor()).perform(body) }
        case .loopPreference: Task(executorPreference: loop.executor()) { try await body() }
        case .pool: Task { try await body() }
        case .mainActor: Task { @MainActor in try await body() }
        }
    }
}

extension RunLoop {
    /// Runs `body` isolated to an actor of this loop.
    func onActor<Result: Sendable>(
        _ body: nonisolated(nonsending) @Sendable () async throws -> Result
    ) async throws -> Result {
        try await Resident(executor()).perform(body)
    }
}

extension TestPipe {
    /// Whether the reader has taken everything.
    var isEmpty: Bool { unreadCount(of: writeEnd) == 0 }
}

/// How many bytes a reader of the pipe or socket has not taken; of a datagram socket, those of the next datagram.
func unreadCount(of descriptor: FileDescriptor) -> Int {
    var count: CInt = 0
    return ioctl(descriptor.rawValue, UInt(FIONREAD), &count) == 0 ? Int(count) : -1
}

/// What `make` returns on another thread, which has ended when this returns.
func madeElsewhere<Value: Sendable>(_ make: @escaping @Sendable () throws -> Value) throws -> Value {
    try onAThread(make)
}

/// Waits until the kernel, which has no event for it, makes `condition` true.
func yieldUntil(_ condition: () -> Bool) async {
    // A task that only yielded would take its share of the processor from what it waits for.
    while !condition() { try? await Task.sleep(for: .milliseconds(1)) }
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
    var errno: Errno? { (self as? IOError)?.errno }
}

extension String {
    init(bytes: some Sequence<UInt8>) { self.init(decoding: Array(bytes), as: UTF8.self) }
}
