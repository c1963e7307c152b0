/// A closure that only its run loop's thread calls, and that is also destroyed there.
///
/// So it may capture what it likes, though others hold it and let go of it: whatever it captured dies at
/// home. When home is no more, because the loop has ended with its thread, it dies where it is let go of.
///
/// `@unchecked Sendable` is right because `box` is only set once, only opened at home, and only released at
/// home or when home is no more.
@safe
final class HomeBound<Closure>: @unchecked Sendable {
    private let box: Unmanaged<Box<LoopBound<Closure>>>
    private let home: LoopIdentity
    private let inbox: Inbox

    /// Takes a closure of the calling thread, which must be `loop`'s.
    init(_ closure: Closure, on loop: RunLoop) {
        home = loop.identity
        unsafe box = .passRetained(Box(LoopBound(closure, home: loop.identity)))
        inbox = loop.inbox
    }

    /// Only the number of the box travels. A reference would be held here for a moment longer, and be the last
    /// one if the loop is quick.
    deinit {
        let address = unsafe UInt(bitPattern: box.toOpaque())
        if !home.isCurrent, inbox.post({ _ in release(address) }) { return }
        unsafe box.release()
    }

    var closure: Closure { unsafe box.takeUnretainedValue().value.value }
}

/// Has `value` destroyed on the loop's thread, or here when that has ended.
///
/// Only the number of its box travels, as for a ``HomeBound``.
@inline(never)
func destroyAtHome<Value: ~Copyable>(_ value: consuming Value, of inbox: Inbox) {
    let box = unsafe Unmanaged.passRetained(Box(value))
    let address = unsafe UInt(bitPattern: box.toOpaque())
    if !inbox.post({ _ in release(address) }) { unsafe box.release() }
}

private final class Box<Value: ~Copyable> {
    let value: Value

    init(_ value: consuming Value) { self.value = value }
}

private func release(_ address: UInt) {
    guard let pointer = unsafe UnsafeRawPointer(bitPattern: address) else { return }
    unsafe Unmanaged<AnyObject>.fromOpaque(pointer).release()
}
