import Glibc
import Synchronization

@testable import Reactor

/// Runs `body` on a new thread, which has a run loop of its own, and waits for its answer without blocking a
/// test's.
///
/// Swift Testing runs tests on a pool of as many threads as there are cores: a loop that waited there would
/// starve the others.
func onItsOwnThread<Result: Sendable>(
    _ body: @escaping @Sendable () throws -> Result
) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
        let thread = try? JoinableThread(name: "test") {
            continuation.resume(with: Swift.Result { try body() })
        }
        precondition(thread != nil, "no thread for a test")
    }
}

/// A variable that closures may share, whatever thread they run on.
final class Shared<Value: Sendable>: Sendable {
    private let stored: Mutex<Value>

    init(_ value: Value) { stored = Mutex(value) }

    var value: Value {
        get { stored.withLock { $0 } }
        set { stored.withLock { $0 = newValue } }
    }

    @discardableResult
    func update<Answer: Sendable>(_ change: (inout Value) -> Answer) -> Answer {
        stored.withLock { change(&$0) }
    }
}
