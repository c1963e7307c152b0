import Glibc
package import SystemPackage

/// A POSIX thread that any number of threads may wait for.
package final class JoinableThread: Sendable {
    private let thread: pthread_t
    private let isJoined = Shared(false)

    package init(name: String = "test", _ body: @escaping @Sendable () -> Void) throws(Errno) {
        let start = Unmanaged.passRetained(Start(name: name, body: body))
        var thread = pthread_t()
        let code = pthread_create(&thread, nil, runStart, start.toOpaque())
        guard code == 0 else {
            start.release()
            throw Errno(rawValue: code)
        }
        self.thread = thread
    }

    deinit {
        if !isJoined.value { pthread_detach(thread) }
    }

    /// Waits until the thread has ended.
    package func join() {
        isJoined.update { isJoined in
            if !isJoined { pthread_join(thread, nil) }
            isJoined = true
        }
    }
}

private final class Start: Sendable {
    let name: String
    let body: @Sendable () -> Void

    init(name: String, body: @escaping @Sendable () -> Void) {
        self.name = name
        self.body = body
    }
}

private func runStart(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    let start = Unmanaged<Start>.fromOpaque(argument!).takeRetainedValue()
    // Swift's Glibc lacks pthread_setname_np.
    if let name = fopen("/proc/thread-self/comm", "w") {
        fputs(start.name, name)
        fclose(name)
    }
    start.body()
    return nil
}

/// Runs `body` on a new thread, which has its own run loop, and awaits its result.
///
/// Swift Testing runs all tests on a pool with one thread per core. A loop that blocked one of these threads would
/// delay the other tests.
package func onItsOwnThread<Result: Sendable>(
    _ body: @escaping @Sendable () throws -> Result
) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
        do {
            _ = try JoinableThread { continuation.resume(with: Swift.Result { try body() }) }
        } catch {
            continuation.resume(throwing: error)
        }
    }
}

/// A counter that threads wait for until it reaches zero.
package final class Countdown: Sendable {
    private let remaining: Shared<Int>

    package init(_ count: Int) { remaining = Shared(count) }

    package func count() { remaining.update { $0 -= 1 } }

    package func wait() { remaining.wait { $0 <= 0 ? () : nil } }
}

/// A value that one thread sets once and others wait for.
package final class Answer<Value: Sendable>: Sendable {
    private let value = Shared<Value?>(nil)

    package init() {}

    package func give(_ value: Value) { self.value.value = value }

    package func wait() -> Value { value.wait { $0 } }
}

/// Runs `body` on `count` threads, which start it at the same time, and waits for all of them.
package func onThreads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) {
    let started = Countdown(count)
    let threads = (0..<count).map { index in
        try? JoinableThread(name: "test \(index)") {
            started.count()
            started.wait()
            body(index)
        }
    }
    for thread in threads {
        precondition(thread != nil, "cannot create a thread for a test")
        thread?.join()
    }
}

/// Runs `body` on a new thread, which has its own run loop, and blocks until it returns.
package func onAThread(_ body: @escaping @Sendable () throws -> Void) throws {
    let result = Answer<Result<Void, any Error>>()
    try JoinableThread { result.give(Result { try body() }) }.join()
    try result.wait().get()
}
