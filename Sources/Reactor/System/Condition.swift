import Glibc

/// Lets threads wait until something that they look at may have changed (pthread_cond_wait(3)).
///
/// Take the ``generation``, look, and if it is not yet as it should be ``wait(after:)`` that generation: a
/// change between the looking and the waiting is not missed.
@safe
final class Condition: Sendable {
    /// Both are initialised before anybody else knows of them and live as long as this object;
    /// `nonisolated(unsafe)` is right because they are only given to the functions whose business it is to
    /// synchronise.
    private nonisolated(unsafe) let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private nonisolated(unsafe) let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    /// Only touched while `mutex` is held.
    private nonisolated(unsafe) let changes = UnsafeMutablePointer<UInt64>.allocate(capacity: 1)

    init() {
        unsafe pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        unsafe pthread_condattr_init(&attributes)
        unsafe pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        unsafe pthread_cond_init(changed, &attributes)
        unsafe pthread_condattr_destroy(&attributes)
        unsafe changes.initialize(to: 0)
    }

    deinit {
        unsafe pthread_cond_destroy(changed)
        unsafe pthread_mutex_destroy(mutex)
        unsafe changes.deallocate()
        unsafe changed.deallocate()
        unsafe mutex.deallocate()
    }

    /// How many changes have been announced.
    var generation: UInt64 { locked { unsafe changes.pointee } }

    func announce() {
        locked {
            unsafe changes.pointee += 1
            unsafe pthread_cond_broadcast(changed)
        }
    }

    func wait(after generation: UInt64) {
        locked {
            while unsafe changes.pointee == generation { unsafe pthread_cond_wait(changed, mutex) }
        }
    }

    /// - Returns: False if `deadline` has passed without a change.
    func wait(after generation: UInt64, until deadline: Deadline) -> Bool {
        var time = timespec(deadline)
        return locked {
            while unsafe changes.pointee == generation {
                let code = unsafe pthread_cond_timedwait(changed, mutex, &time)
                if code == ETIMEDOUT { return false }
            }
            return true
        }
    }

    private func locked<Result>(_ body: () -> Result) -> Result {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        return body()
    }
}

extension timespec {
    fileprivate init(_ deadline: Deadline) {
        let (seconds, nanoseconds) = max(deadline.uptimeNanoseconds, 0).quotientAndRemainder(
            dividingBy: 1_000_000_000)
        self.init(tv_sec: Int(seconds), tv_nsec: Int(nanoseconds))
    }
}
