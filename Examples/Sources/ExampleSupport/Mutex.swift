import Synchronization

/// Synchronization's mutex in a form that the thread sanitizer understands, as the library's own.
///
/// When threads contend, the kernel hands the lock over inside a library that is not compiled for the
/// sanitizer. The store before unlocking and the load after locking show it the order.
package struct Mutex<Value: ~Copyable>: ~Copyable, Sendable {
    private let mutex: Synchronization.Mutex<Value>
    private let order = Atomic(false)

    package init(_ value: consuming sending Value) { mutex = Synchronization.Mutex(value) }

    /// Calls `body` with the value while no other thread can use it.
    package func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        try mutex.withLock { (value: inout sending Value) throws(Failure) -> sending Result in
            _ = order.load(ordering: .acquiring)
            defer { order.store(true, ordering: .releasing) }
            return try body(&value)
        }
    }

    /// Calls `body` with the value, unless a thread holds the lock.
    package func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        try mutex.withLockIfAvailable { (value: inout sending Value) throws(Failure) -> sending Result in
            _ = order.load(ordering: .acquiring)
            defer { order.store(true, ordering: .releasing) }
            return try body(&value)
        }
    }
}
