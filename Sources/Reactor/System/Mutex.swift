public import Synchronization

/// Synchronization's mutex in a form that the thread sanitizer understands; the package uses it everywhere.
///
/// When threads contend, the kernel hands the lock over (futex(2), `FUTEX_LOCK_PI`) inside a library that is not compiled for
/// the sanitizer, which then reports ordered accesses as races. The store before unlocking and the load after locking show
/// it the order. On x86 both are plain moves.
@usableFromInline package struct Mutex<Value: ~Copyable>: ~Copyable, Sendable {
    @usableFromInline let mutex: Synchronization.Mutex<Value>
    @usableFromInline let order = Atomic(false)

    @inlinable package init(_ value: consuming sending Value) { mutex = Synchronization.Mutex(value) }

    /// Calls `body` with the value while no other thread can touch it.
    @inlinable package func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        try mutex.withLock { (value: inout sending Value) throws(Failure) -> sending Result in
            _ = order.load(ordering: .acquiring)
            defer { order.store(true, ordering: .releasing) }
            return try body(&value)
        }
    }

    /// Calls `body` with the value, unless a thread holds the lock.
    @inlinable package func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        try mutex.withLockIfAvailable { (value: inout sending Value) throws(Failure) -> sending Result in
            _ = order.load(ordering: .acquiring)
            defer { order.store(true, ordering: .releasing) }
            return try body(&value)
        }
    }
}
