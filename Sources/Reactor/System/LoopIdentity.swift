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
/// box can have been shared.
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
