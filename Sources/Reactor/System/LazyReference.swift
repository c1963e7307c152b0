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
        if let address = unsafe address { _ = unsafe CallbackContext.take(address, as: Object.self) }
    }

    private var address: UnsafeMutableRawPointer? {
        unsafe UnsafeMutableRawPointer(bitPattern: storage.load(ordering: .acquiring))
    }

    var isEmpty: Bool { storage.load(ordering: .acquiring) == 0 }

    @inline(__always)
    func load() -> Object? {
        unsafe address.map { unsafe CallbackContext.object($0) }
    }

    /// Sets the reference unless another thread has done so.
    func storeIfNil(_ object: Object) {
        let address = CallbackContext.retain(object)
        guard
            !storage.compareExchange(
                expected: 0, desired: UInt(bitPattern: address), ordering: .acquiringAndReleasing
            )
            .exchanged
        else { return }
        _ = unsafe CallbackContext.take(address, as: Object.self)
    }
}
