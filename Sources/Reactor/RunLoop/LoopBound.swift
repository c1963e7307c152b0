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
        @inline(__always) _read {
            owner.requireCurrent("\(Value.self)")
            yield guarded
        }
    }
}

/// A value that only its run loop's thread may use, and that is also destroyed there, whichever thread releases the last
/// reference. So a closure in it may capture what is not `Sendable`.
///
/// Once the loop's thread has released everything else that belongs to it, the thread that releases the last reference
/// destroys the value.
package final class LoopOwned<Value>: Sendable {
    /// Nil once the loop has destroyed the value.
    private let content: Mutex<LoopBound<Value>?>
    private let owner: LoopIdentity
    private let inbox: Inbox
    /// Whether the loop has been asked already to destroy the value.
    private let isLast: Bool

    /// - Parameter loop: The loop that the value belongs to.
    package convenience init(_ value: consuming Value, on loop: RunLoop) {
        self.init(LoopBound(value, owner: loop.identity), loop.inbox, isLast: false)
    }

    private init(_ bound: consuming LoopBound<Value>, _ inbox: Inbox, isLast: Bool) {
        (owner, self.inbox, self.isLast) = (bound.owner, inbox, isLast)
        content = Mutex(consume bound)
    }

    // The loop takes the value out of another box, so that it does not matter which thread releases that last.
    deinit {
        guard !isLast, !owner.isCurrent, let bound = content.withLock({ $0.take() }) else { return }
        // Consumed: a reference that this thread kept a moment longer than the loop would destroy the value here.
        let last = LoopOwned(consume bound, inbox, isLast: true)
        _ = inbox.postRelease { _ in last.destroy() }
    }

    private func destroy() {
        let bound = content.withLock { $0.take() }
        _ = consume bound
    }

    package var value: Value { content.withLock { $0 }!.value }

    /// Whether the calling thread is the loop's.
    package var isOnLoopThread: Bool { owner.isCurrent }

    /// Calls `body` with the value when the loop's thread collects what other threads have posted, in any mode. Does
    /// nothing once that thread has ended, nor in a child of fork(2).
    ///
    /// For what deregisters a descriptor that the caller is about to close. Its number may be used again at once, and a
    /// block would come after the registration of another stream with that number.
    func performBeforeBlocks(_ body: @escaping @Sendable (Value) -> Void) {
        inbox.post { [self] _ in body(value) }
    }

    /// Calls `body` with the value on the loop's thread, in a pass in the default mode. Does nothing once that thread has
    /// ended, nor in a child of fork(2).
    func perform(_ body: @escaping @Sendable (Value) -> Void) {
        inbox.post(PostedBlock(modes: ModeSet(.default), isSource: false) { [self] in body(value) })
    }
}
