import CReactorLinux
public import Foundation
import Glibc
public import Reactor

extension Deadline {
    /// The deadline that corresponds to `date`, rounded up to whole nanoseconds.
    ///
    /// The conversion uses the difference between the system clocks at the time of the call: setting the
    /// system's date afterwards does not move the deadline. Dates outside the range of 64-bit nanoseconds,
    /// some three centuries, become `distantPast` or `distantFuture`, as do Foundation's own distant
    /// dates.
    /// - Precondition: The date is not NaN.
    public init(_ date: Date) {
        let seconds = date.timeIntervalSinceReferenceDate
        require(!seconds.isNaN, "A date must not be NaN.")
        guard abs(seconds) < Clocks.maximumSeconds else {
            self = seconds > 0 ? .distantFuture : .distantPast
            return
        }
        // Splitting off the fraction of a Double is exact, so only the nanoseconds are rounded.
        let whole = seconds.rounded(.down)
        let fraction = Int64(((seconds - whole) * 1e9).rounded(.up))
        let nanoseconds = Int128(Int64(whole) + Clocks.referenceDate) * 1_000_000_000 + Int128(fraction)
        self.init(uptimeNanoseconds: Int64(clamping: nanoseconds - Int128(Clocks.realtimeOffset)))
    }
}

extension Date {
    /// The date that corresponds to `deadline`.
    ///
    /// A deadline made from a present-day date converts back to exactly that date, unless the system's date
    /// has been set in between.
    public init(_ deadline: Deadline) {
        switch deadline {
        case .distantFuture: self = .distantFuture
        case .distantPast: self = .distantPast
        default:
            let (seconds, nanoseconds) = (Int128(deadline.uptimeNanoseconds) + Int128(Clocks.realtimeOffset))
                .quotientAndRemainder(dividingBy: 1_000_000_000)
            let whole = Double(Int64(seconds) - Clocks.referenceDate)
            self.init(timeIntervalSinceReferenceDate: whole + Double(Int64(nanoseconds)) / 1e9)
        }
    }
}

/// The relation between the system's realtime and monotonic clocks.
private enum Clocks {
    /// Foundation's reference date, 2001-01-01, in seconds since 1970.
    static var referenceDate: Int64 { 978_307_200 }

    /// Some three thousand years: beyond the range of a deadline, and still exact in the arithmetic above.
    static var maximumSeconds: Double { 1e11 }

    /// The realtime clock minus the monotonic clock, in nanoseconds.
    ///
    /// Both clocks advance together, so the offset changes only when the system's date is set. The coarse
    /// clocks hold the time of the last tick: read within one tick, their difference is exact
    /// (clock_gettime(2)).
    static var realtimeOffset: Int64 {
        for _ in 0..<maximumAttempts {
            let before = reactor_clock_nanoseconds(CLOCK_MONOTONIC_COARSE)
            let realtime = reactor_clock_nanoseconds(CLOCK_REALTIME_COARSE)
            if reactor_clock_nanoseconds(CLOCK_MONOTONIC_COARSE) == before { return realtime - before }
        }
        // In this order the offset errs on the low side, and a deadline is never early.
        let realtime = reactor_clock_nanoseconds(CLOCK_REALTIME)
        return realtime - reactor_clock_nanoseconds(CLOCK_MONOTONIC)
    }

    /// A tick rarely falls between the readings; on a kernel without ticks, where the coarse clocks are exact,
    /// every attempt fails.
    private static var maximumAttempts: Int { 8 }
}
