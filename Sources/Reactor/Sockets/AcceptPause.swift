/// How long accepting pauses after a fault, and when to tell of one. Pure: reads no clock.
struct AcceptPause {
    /// Descriptors are mostly free again soon, and a try costs microseconds.
    private static let shortest = Duration.milliseconds(10)
    /// A client that waits for this longer than for the descriptor hardly notices.
    private static let longest = Duration.milliseconds(320)
    /// Somebody writes a log.
    private static let silence = Duration.seconds(1)

    private var upcoming = shortest
    private var lastTelling = Deadline.distantPast

    /// The next pause, twice as long as the last one.
    mutating func next() -> Duration {
        defer { upcoming = min(upcoming * 2, Self.longest) }
        return upcoming
    }

    /// A connection has been accepted.
    mutating func reset() { upcoming = Self.shortest }

    /// Whether to tell of a fault at `now`: not so soon after the last time.
    mutating func tells(at now: Deadline) -> Bool {
        guard lastTelling == .distantPast || lastTelling.advanced(by: Self.silence) <= now else {
            return false
        }
        lastTelling = now
        return true
    }
}
