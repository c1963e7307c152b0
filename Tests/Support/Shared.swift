import Glibc

/// A variable that closures may share, whatever thread they run on.
///
/// Behind a lock that the thread sanitizer can follow. `@unchecked Sendable` is right because the value is only touched
/// while that is held.
package final class Shared<Value: Sendable>: @unchecked Sendable {
    private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private var stored: Value

    package init(_ value: Value) {
        stored = value
        pthread_mutex_init(lock, nil)
    }

    deinit {
        pthread_mutex_destroy(lock)
        lock.deallocate()
    }

    package var value: Value {
        get { update { $0 } }
        set { update { $0 = newValue } }
    }

    @discardableResult
    package func update<Answer: Sendable>(_ change: (inout Value) -> Answer) -> Answer {
        pthread_mutex_lock(lock)
        defer { pthread_mutex_unlock(lock) }
        return change(&stored)
    }
}
