/// A value that only its run loop's thread may use; on any other thread an access traps.
///
/// `@unchecked Sendable`: every access compares the thread's loop with the owner first, loops' numbers are never reused,
/// and the value is set before another thread can have the box. That says nothing about where the value is destroyed: the
/// box's owner ensures that this happens on the loop's thread, or after that thread has ended; see ``LoopOwned``.
struct LoopBound<Value>: @unchecked Sendable {
    /// The loop whose thread may use the value.
    let owner: LoopIdentity
    private let guarded: Value

    init(_ value: Value, owner: LoopIdentity) {
        self.owner = owner
        guarded = value
    }

    var value: Value {
        owner.requireCurrent("\(Value.self)")
        return guarded
    }
}

/// A value that only its run loop's thread may use, and that is also destroyed there, whichever thread releases the last
/// reference. So a closure in it may capture what is not `Sendable`.
///
/// Once the loop's thread has released everything else that belongs to it, the thread that releases the last reference
/// destroys the value.
package final class LoopOwned<Value>: Sendable {
    private let content: DeferredRelease<LoopBound<Value>>
    private let owner: LoopIdentity
    private let inbox: Inbox

    /// - Parameter loop: The calling thread's loop.
    package init(_ value: Value, on loop: RunLoop) {
        content = DeferredRelease(LoopBound(value, owner: loop.identity))
        owner = loop.identity
        inbox = loop.inbox
    }

    deinit { if !owner.isCurrent { content.post(to: inbox) } }

    package var value: Value { content.value.withLock { $0 }!.value }

    /// Whether the calling thread is the loop's.
    package var isOnLoopThread: Bool { owner.isCurrent }

    /// Calls `body` with the value on the loop's thread, in a pass in the default mode. Does nothing once that thread has
    /// ended, nor in a child of fork(2).
    func perform(_ body: @escaping @Sendable (Value) -> Void) {
        inbox.post(PostedBlock(modes: ModeSet(.default), isSource: false) { [self] in body(value) })
    }
}

/// A value that a run loop's thread destroys.
///
/// The loop takes the value out, so that it does not matter which thread releases this last.
final class DeferredRelease<Value: ~Copyable & Sendable>: Sendable {
    fileprivate let value: Mutex<Value?>

    init(_ value: consuming Value) { self.value = Mutex(value) }

    /// Posts the value to a loop for destruction; once the loop's thread has released everything that belongs to it, the
    /// value is destroyed with this object.
    func post(to inbox: Inbox) {
        _ = inbox.postRelease { [self] _ in
            let value = value.withLock { $0.take() }
            _ = consume value
        }
    }
}
