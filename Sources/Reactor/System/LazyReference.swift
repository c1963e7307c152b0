import Synchronization

/// A reference that is set at most once, and that any thread may read.
///
/// Replaces Synchronization's `AtomicLazyReference`, whose `load()` is not inlinable in Swift 6.3 and takes 570 instructions.
///
/// `@safe`: `storage` is zero or the address of an object that this value retains until its own `deinit`.
@safe
struct LazyReference<Object: AnyObject & Sendable>: ~Copyable, Sendable {
    private let storage = Atomic<UInt>(0)

    deinit {
        guard let address = unsafe UnsafeRawPointer(bitPattern: storage.load(ordering: .acquiring)) else {
            return
        }
        unsafe Unmanaged<Object>.fromOpaque(address).release()
    }

    @inline(__always)
    var isEmpty: Bool { storage.load(ordering: .acquiring) == 0 }

    @inline(__always)
    func load() -> Object? {
        guard let address = unsafe UnsafeRawPointer(bitPattern: storage.load(ordering: .acquiring)) else {
            return nil
        }
        return unsafe Unmanaged<Object>.fromOpaque(address).takeUnretainedValue()
    }

    /// Sets the reference unless another thread has done so.
    func storeIfNil(_ object: Object) {
        let retained = unsafe Unmanaged.passRetained(object)
        let address = unsafe UInt(bitPattern: retained.toOpaque())
        guard
            !storage.compareExchange(expected: 0, desired: address, ordering: .acquiringAndReleasing)
                .exchanged
        else { return }
        unsafe retained.release()
    }
}
