import Glibc

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
        get { update { $0 } }
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
