import CReactorLinux

/// A point in time on the monotonic clock, in nanoseconds.
///
/// The clock is `CLOCK_MONOTONIC` (clock_gettime(2)), the one of `DispatchTime` and `SuspendingClock`: it
/// does not jump when the date is set, and stops while the system is suspended. Arithmetic saturates at
/// ``distantPast`` and ``distantFuture``; a `Duration` that is not a whole number of nanoseconds is rounded
/// up, so that a wait never ends early.
///
/// Where Foundation's run loop takes a `Date`, this library takes a `Deadline`.
///
/// ```swift
/// let deadline = Deadline.now.advanced(by: .seconds(5))
/// while !isDone, Deadline.now < deadline { RunLoop.current.run(mode: .default, before: deadline) }
/// ```
public struct Deadline: InstantProtocol, Sendable, CustomStringConvertible {
    /// Nanoseconds since the clock's start; `Int64.max` is ``distantFuture``.
    public let uptimeNanoseconds: Int64

    /// Creates the deadline at `uptimeNanoseconds` of `CLOCK_MONOTONIC`.
    public init(uptimeNanoseconds: Int64) {
        self.uptimeNanoseconds = uptimeNanoseconds
    }

    /// The present moment.
    public static var now: Deadline { Deadline(uptimeNanoseconds: reactor_monotonic_nanoseconds()) }

    /// The kernel's time at this deadline: another one only while a test has replaced the time of the calling thread.
    package var kernelNanoseconds: Int64 {
        self == .distantFuture
            ? .max : uptimeNanoseconds.addingSaturated(-(ReplacedClocks.current?.offset ?? 0))
    }

    /// Later than every other deadline: a wait without limit.
    public static var distantFuture: Deadline { Deadline(uptimeNanoseconds: .max) }

    /// Earlier than every other deadline: no wait at all.
    public static var distantPast: Deadline { Deadline(uptimeNanoseconds: .min) }

    /// The deadline `duration` later; the distant future and past stay where they are.
    public func advanced(by duration: Duration) -> Deadline {
        guard self != .distantFuture, self != .distantPast else { return self }
        return Deadline(uptimeNanoseconds: uptimeNanoseconds.addingSaturated(duration.wholeNanoseconds))
    }

    /// How much later `other` is; negative when it is earlier.
    public func duration(to other: Deadline) -> Duration {
        let (seconds, nanoseconds) = (Int128(other.uptimeNanoseconds) - Int128(uptimeNanoseconds))
            .quotientAndRemainder(dividingBy: 1_000_000_000)
        return Duration(
            secondsComponent: Int64(seconds), attosecondsComponent: Int64(nanoseconds) * 1_000_000_000)
    }

    /// The deadline `duration` after `deadline`; see ``advanced(by:)``.
    public static func + (deadline: Deadline, duration: Duration) -> Deadline {
        deadline.advanced(by: duration)
    }

    /// The deadline `duration` before `deadline`; the distant future and past stay where they are.
    public static func - (deadline: Deadline, duration: Duration) -> Deadline {
        deadline.advanced(by: .zero - duration)
    }

    /// The duration from `right` to `left`; negative when `left` is earlier.
    public static func - (left: Deadline, right: Deadline) -> Duration { right.duration(to: left) }

    /// Whether `left` comes before `right`.
    public static func < (left: Deadline, right: Deadline) -> Bool {
        left.uptimeNanoseconds < right.uptimeNanoseconds
    }

    /// The clock's time, such as `uptime 12.5 seconds`; `distant future` and `distant past`.
    public var description: String {
        switch self {
        case .distantFuture: "distant future"
        case .distantPast: "distant past"
        default: "uptime \(Duration.nanoseconds(uptimeNanoseconds))"
        }
    }
}

extension Duration {
    /// This duration in nanoseconds, rounded up and clamped to 64 bits.
    package var wholeNanoseconds: Int64 {
        let attoseconds = self.attoseconds
        // A nanosecond has 2⁹·5⁹ attoseconds. Durations of less than 78 minutes need no 128-bit division.
        if let part = Int64(exactly: (attoseconds &+ 511) >> 9) {
            let (whole, rest) = part.quotientAndRemainder(dividingBy: 1_953_125)
            return rest > 0 ? whole + 1 : whole
        }
        let (whole, rest) = attoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        return Int64(clamping: rest > 0 ? whole + 1 : whole)
    }

    /// This duration as poll(2) takes it: in milliseconds, rounded up, clamped, and not negative.
    var wholeMilliseconds: CInt {
        let nanoseconds = wholeNanoseconds
        return nanoseconds > 0 ? CInt(clamping: (nanoseconds - 1) / 1_000_000 + 1) : 0
    }
}

extension Int64 {
    func addingSaturated(_ other: Int64) -> Int64 {
        let (sum, overflow) = addingReportingOverflow(other)
        guard overflow else { return sum }
        return other > 0 ? .max : .min
    }
}
