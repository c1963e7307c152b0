import Glibc

/// Runs `body` on a new thread, which has a run loop of its own, and waits for its answer without blocking a
/// test's.
///
/// Swift Testing runs tests on a pool of as many threads as there are cores: a loop that waited there would
/// starve the others.
package func onItsOwnThread<Result: Sendable>(
    _ body: @escaping @Sendable () throws -> Result
) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
        let job = Unmanaged.passRetained(Job { continuation.resume(with: Swift.Result { try body() }) })
        var thread = pthread_t()
        let code = pthread_create(&thread, nil, runJob, job.toOpaque())
        precondition(code == 0, "no thread for a test")
        pthread_detach(thread)
    }
}

private final class Job {
    let body: @Sendable () -> Void

    init(_ body: @escaping @Sendable () -> Void) { self.body = body }
}

private func runJob(_ pointer: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    Unmanaged<Job>.fromOpaque(pointer!).takeRetainedValue().body()
    return nil
}
