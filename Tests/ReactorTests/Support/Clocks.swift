import Reactor

extension Deadline {
    /// Keeps the thread busy until the clock is past this: what a long callout does.
    func busyWait() {
        while Deadline.now <= self {}
    }

    static func + (deadline: Deadline, duration: Duration) -> Deadline { deadline.advanced(by: duration) }

    static func - (deadline: Deadline, duration: Duration) -> Deadline {
        deadline.advanced(by: .zero - duration)
    }

    static func - (later: Deadline, earlier: Deadline) -> Duration { earlier.duration(to: later) }
}

extension Duration {
    /// Whether this is a multiple of `other`: how a date keeps its phase.
    func isMultiple(of other: Duration) -> Bool { attoseconds % other.attoseconds == 0 }
}

/// A seeded generator (SplitMix64): what fails once fails again.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ (word >> 30)) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ (word >> 27)) &* 0x94D0_49BB_1331_11EB
        return word ^ (word >> 31)
    }
}
