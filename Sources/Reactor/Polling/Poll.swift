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

    /// The stamp of no poll; no poll follows it.
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
