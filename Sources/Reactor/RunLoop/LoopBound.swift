import CReactorLinux
import Synchronization

/// The number of a run loop, unique for the life of the process: unlike a thread's, it is never used again.
struct LoopIdentity: Sendable, Hashable {
    let number: UInt64

    private static let last = Atomic<UInt64>(0)

    static func next() -> LoopIdentity {
        LoopIdentity(number: last.add(1, ordering: .relaxed).newValue)
    }

    /// That of the calling thread's loop.
    static var current: LoopIdentity { LoopIdentity(number: reactor_current_loop()) }

    /// Whether the calling thread is the one that the loop belongs to.
    var isCurrent: Bool { reactor_current_loop() == number }
}

/// A value that only its run loop's thread may touch; any other thread traps.
///
/// `@unchecked Sendable` is right because every access compares the thread's loop with the owner's first, and
/// loops' numbers are never reused. Making the value is the one access without a check: it happens before the
/// box can have been shared. Where the value is destroyed is the business of its keeper: see ``HomeBound``.
struct LoopBound<Value>: @unchecked Sendable {
    let home: LoopIdentity
    private let guarded: Value

    init(_ value: Value, home: LoopIdentity) {
        self.home = home
        guarded = value
    }

    var value: Value {
        precondition(home.isCurrent, "used off its run loop's thread")
        return guarded
    }
}

/// A closure that only its run loop's thread calls, and that is also destroyed there.
///
/// So it may capture what it likes, though other threads hold the reference and release it: whatever it captured is
/// destroyed on the loop's thread. Once the loop has ended with its thread, it is destroyed where the last reference is
/// released.
final class HomeBound<Closure>: Sendable {
    private let parcel: Parcel<LoopBound<Closure>>
    private let home: LoopIdentity
    private let inbox: Inbox

    /// Takes a closure of the calling thread, which must be `loop`'s.
    init(_ closure: Closure, on loop: RunLoop) {
        parcel = Parcel(LoopBound(closure, home: loop.identity))
        home = loop.identity
        inbox = loop.inbox
    }

    deinit { if !home.isCurrent { parcel.send(to: inbox) } }

    var closure: Closure { parcel.content.withLock { $0 }!.value }
}

/// A value on its way to a run loop's thread, which destroys it.
///
/// The loop takes the value out, so that it does not matter who releases the parcel last.
final class Parcel<Value: ~Copyable & Sendable>: Sendable {
    fileprivate let content: Mutex<Value?>

    init(_ value: consuming Value) { content = Mutex(value) }

    /// Has the value destroyed on the loop's thread; where that has ended, with the parcel.
    func send(to inbox: Inbox) {
        inbox.post { [self] _ in
            let value = content.withLock { $0.take() }
            _ = consume value
        }
    }
}
