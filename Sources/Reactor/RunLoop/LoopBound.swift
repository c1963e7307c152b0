import CReactorLinux
import Synchronization

/// The number of a run loop, unique for the life of the process: unlike a thread's, it is never reused.
struct LoopIdentity: Sendable, Hashable {
    let number: UInt64

    private static let last = Atomic<UInt64>(0)

    static func next() -> LoopIdentity {
        LoopIdentity(number: last.add(1, ordering: .relaxed).newValue)
    }

    /// The calling thread's loop.
    static var current: LoopIdentity { LoopIdentity(number: reactor_current_loop()) }

    /// Whether the loop is the calling thread's.
    var isCurrent: Bool { reactor_current_loop() == number }

    /// Ends the process with a message about `object` unless the loop is the calling thread's.
    @inline(__always)
    func requireCurrent(_ object: @autoclosure () -> String) {
        if !isCurrent { refuse(object) }
    }

    @inline(never)
    private func refuse(_ object: () -> String) -> Never {
        fatalError(
            "\(object()) belongs to run loop \(number) and was used on \(currentThreadName): "
                + "use it on the loop's own thread, for example in RunLoop.perform(inModes:_:).")
    }
}

/// The last time that a thread's loop has asked the kernel what is ready.
struct Poll: Sendable, Equatable {
    /// The loop's number, and 32 bits of how often it has done that.
    private let rawValue: UInt64

    init(loop: LoopIdentity, count: UInt32) { rawValue = loop.number << 32 | UInt64(count) }

    init(_ rawValue: UInt64) { self.rawValue = rawValue }

    /// Equal to no thread's.
    static var none: Poll { Poll(.max) }

    /// Followed by no poll.
    static var unknown: Poll { Poll(0) }

    /// Whether this poll was made after `other` by the same loop.
    @inline(__always)
    func follows(_ other: Poll) -> Bool {
        loop == other.loop && UInt32(truncatingIfNeeded: rawValue &- other.rawValue &- 1) < 1 << 31
    }

    var loop: LoopIdentity { LoopIdentity(number: rawValue >> 32) }

    /// The calling thread's.
    static var last: Poll { @inline(__always) get { Poll(reactor_last_poll()) } }
}

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
