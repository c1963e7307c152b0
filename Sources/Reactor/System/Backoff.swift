/// The delays between the attempts of something that fails, such as connecting to a server: random, and on average twice as
/// long each time.
///
/// ```swift
/// var backoff = Backoff()
/// while true {
///     do {
///         try await converse { backoff.reset() }
///     } catch let error as IOError {
///         print(error)
///     }
///     try await clock.sleep(for: backoff.nextDelay())
/// }
/// ```
///
/// Each delay lies anywhere between zero and a bound, so that the clients of a server that was restarted do not all return at
/// once. The bound begins with ``first``, and is multiplied by ``factor`` after each attempt, up to ``limit``.
///
/// Reset it when an attempt has reached its aim, such as a server's first reply, and not when the connection is open: a server
/// that accepts and closes at once would be asked without a pause.
public struct Backoff: Hashable, Sendable {
    /// The bound of the first delay.
    public let first: Duration
    /// The largest bound.
    public let limit: Duration
    /// How many times larger each bound is than the one before.
    public let factor: Double
    private var bound: Duration

    /// Creates the delays of a first attempt and its successors.
    ///
    /// - Parameters:
    ///   - first: The bound of the first delay.
    ///   - limit: The largest bound.
    ///   - factor: How many times larger each bound is than the one before.
    /// - Precondition: `first` is above zero, `limit` at least `first`, and `factor` at least 1 and finite.
    public init(first: Duration = .seconds(1), limit: Duration = .seconds(60), factor: Double = 2) {
        require(first > .zero, "The first delay of a Backoff must be above zero (it is \(first)).")
        require(limit >= first, "The limit of a Backoff must be at least its first delay (it is \(limit)).")
        require(
            factor >= 1 && factor.isFinite,
            "The factor of a Backoff must be at least 1, and finite (it is \(factor)).")
        (self.first, self.limit, self.factor) = (first, limit, factor)
        bound = first
    }

    /// How long to wait before the next attempt: at random, between zero and the bound, which grows.
    public mutating func nextDelay() -> Duration {
        let bound = nextBound().attoseconds
        if let network = currentTimeSource?.network {
            return Duration(attoseconds: network.random(upTo: bound))
        }
        return Duration(attoseconds: .random(in: 0...bound))
    }

    /// Begins with the first delay again.
    public mutating func reset() { bound = first }

    /// A delay that is not random.
    package mutating func nextBound() -> Duration {
        // Divided, as the product may be out of a Duration's range.
        defer { bound = bound > limit / factor ? limit : min(bound * factor, limit) }
        return bound
    }
}
