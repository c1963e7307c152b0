import Glibc

/// A variable that closures may share, whatever thread they run on, and that threads may wait for.
///
/// Behind a lock that the thread sanitizer can follow. `@unchecked Sendable` is right because the value is only touched
/// while that is held.
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
    package func update<Answer: Sendable>(_ change: (inout Value) -> Answer) -> Answer {
        pthread_mutex_lock(lock)
        defer {
            pthread_cond_broadcast(changed)
            pthread_mutex_unlock(lock)
        }
        return change(&stored)
    }

    /// Waits until `answer` finds one in the value; it is asked again after each change.
    package func wait<Answer: Sendable>(for answer: (Value) -> Answer?) -> Answer {
        pthread_mutex_lock(lock)
        defer { pthread_mutex_unlock(lock) }
        while true {
            if let answer = answer(stored) { return answer }
            pthread_cond_wait(changed, lock)
        }
    }
}

/// Carries a value to another thread, for tests that do on purpose what the compiler cannot check: use a value on one
/// thread after the other, or as its documentation allows.
package struct Carrier<Value>: @unchecked Sendable {
    package let value: Value

    package init(_ value: Value) { self.value = value }
}
