/// What happened in a test, in order, on whatever threads.
package final class Trace: Sendable {
    private let events = Shared<[String]>([])

    package init() {}

    package func callAsFunction(_ event: String) { events.update { $0.append(event) } }

    package var all: [String] { events.value }

    /// What happened since the last call.
    package func take() -> [String] {
        events.update { events in
            defer { events = [] }
            return events
        }
    }
}

/// Calls a closure when it is destroyed: where, and whether, the last reference to it is released.
package final class AtEnd: Sendable {
    private let action: @Sendable () -> Void

    package init(_ action: @escaping @Sendable () -> Void) { self.action = action }

    deinit { action() }
}

/// Something whose end can be seen.
package final class Witness: Sendable {
    package init() {}
}

/// Whether a witness still is; holds it no longer than others do.
package struct Fate: Sendable {
    package weak let witness: Witness?

    package init(_ witness: Witness) { self.witness = witness }

    package var isFreed: Bool { witness == nil }
}

/// A seeded generator (SplitMix64): what fails once fails again.
package struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    package init(seed: UInt64) { state = seed }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ (word >> 30)) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ (word >> 27)) &* 0x94D0_49BB_1331_11EB
        return word ^ (word >> 31)
    }
}
