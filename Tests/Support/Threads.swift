import Glibc
package import SystemPackage

/// A variable that closures on any threads may share, and whose changes threads may wait for.
///
/// Uses a POSIX mutex, which the thread sanitizer understands. `@unchecked Sendable` is correct: the value is accessed
/// only while the mutex is locked.
package final class Shared<Value: Sendable>: @unchecked Sendable {
    private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var stored: Value

    package init(_ value: Value) {
        stored = value
        pthread_mutex_init(lock, nil)
        pthread_cond_init(changed, nil)
    }

    deinit {
        pthread_cond_destroy(changed)
        pthread_mutex_destroy(lock)
        changed.deallocate()
        lock.deallocate()
    }

    package var value: Value {
        get {
            pthread_mutex_lock(lock)
            defer { pthread_mutex_unlock(lock) }
            return stored
        }
        set { update { $0 = newValue } }
    }

    @discardableResult
    package func update<Result: Sendable>(_ change: (inout Value) -> Result) -> Result {
        pthread_mutex_lock(lock)
        defer {
            pthread_cond_broadcast(changed)
            pthread_mutex_unlock(lock)
        }
        return change(&stored)
    }

    /// Waits until `result` returns a value other than nil. Calls it once, and again after each change.
    package func wait<Result: Sendable>(for result: (Value) -> Result?) -> Result {
        pthread_mutex_lock(lock)
        defer { pthread_mutex_unlock(lock) }
        while true {
            if let result = result(stored) { return result }
            pthread_cond_wait(changed, lock)
        }
    }
}

/// Transfers a value to another thread without the compiler's checks, for tests that use the value on one thread after
/// another, or as its documentation allows.
package struct Carrier<Value>: @unchecked Sendable {
    package let value: Value

    package init(_ value: Value) { self.value = value }
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

/// Runs `body` on a new thread, which has its own run loop, and returns its result when the thread has ended.
@discardableResult
package func onAThread<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) throws -> Result {
    let result = Answer<Swift.Result<Result, any Error>>()
    try JoinableThread { result.give(Swift.Result { try body() }) }.join()
    return try result.wait().get()
}

/// Runs `body` on a new thread, which has its own run loop, and awaits its result.
///
/// For an asynchronous test in a suite without the trait `.runLoop`.
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

/// Runs `body` on `count` threads, which start it at the same time, and waits for all of them.
package func onThreads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) {
    let started = Countdown(count)
    let threads = (0..<count).map { index in
        let thread = try? JoinableThread(name: "test \(index)") {
            started.count()
            started.wait()
            body(index)
        }
        guard let thread else { preconditionFailure("cannot create a thread for a test") }
        return thread
    }
    for thread in threads { thread.join() }
}
