import Reactor

/// The seeds 0 to `count` - 1, for the argument of a test.
///
/// A failing case shows its seed. Set REACTOR_SEED in the environment to that number to rerun only that case. With
/// REACTOR_SEED=17:reset-connection-4-0 a simulation has only that of its faults; see `simulate(seeds:)`. With
/// REACTOR_FIRST_SEED=1000 the seeds are 1000 to 999 + `count`.
///
/// ```swift
/// @Test(arguments: seeds(200))
/// func `two clients get their own answers`(seed: UInt64) throws {
///     try withVirtualTime(seed: seed) { time in … }
/// }
/// ```
///
/// A seed determines the order in which a loop serves what is ready at the same time, which the kernel does not promise, the
/// random sizes of a ``TestConnection``'s pieces, and everything that a simulated network does.
public func seeds(_ count: Int) -> [UInt64] {
    precondition(count >= 0, "seeds(_:) needs a count that is not negative.")
    if let choice = SeedChoice.inEnvironment { return [choice.seed] }
    let first = UInt64(environmentNumber("REACTOR_FIRST_SEED") ?? 0)
    return Array(first..<first + UInt64(count))
}

/// A seed, and the faults that its simulation has.
struct SeedChoice: Equatable {
    /// The environment's REACTOR_SEED.
    static let inEnvironment: SeedChoice? = environmentVariable("REACTOR_SEED").map { text in
        guard let choice = SeedChoice(text) else { fatalError("REACTOR_SEED is not a seed: \(text)") }
        return choice
    }

    let seed: UInt64
    /// Nil for all.
    let faults: [Fault]?

    /// Parses `17`, `17:reset-connection-4-0,refusal-connection-9-0` or `17:`.
    init?(_ text: String) {
        let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard let seed = parts.first.flatMap({ UInt64($0) }) else { return nil }
        self.seed = seed
        let faults = parts.dropFirst().first?.split(separator: ",").map { Fault($0) }
        guard faults?.contains(nil) != true else { return nil }
        self.faults = faults?.compactMap(\.self)
    }
}

/// Random numbers that are the same for the same seed, on every machine: for what a test itself decides by chance.
///
/// SplitMix64; not for secrets. The standard library has no generator that takes a seed.
public struct SeededGenerator: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// Creates a generator that begins with the first number of `seed`.
    public init(seed: UInt64) { state = seed }

    /// A seed of two numbers.
    static func mix(_ first: UInt64, _ second: UInt64) -> UInt64 {
        var generator = SeededGenerator(seed: first)
        generator.state = generator.next() ^ second
        return generator.next()
    }

    /// Returns the next number. Each of the 2⁶⁴ is as likely as another.
    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}

/// A number of the environment; nil if the variable is not set.
func environmentNumber(_ name: String) -> Int? {
    environmentVariable(name).map { text in
        guard let number = Int(text), number >= 0 else {
            fatalError("\(name) must be a number that is not negative, and is '\(text)'.")
        }
        return number
    }
}
