import CReactorLinux
public import Foundation
import Glibc
public import Reactor

extension Deadline {
    /// The deadline at `date`, never earlier, by what the two clocks say now: who sets the system's date later does not
    /// move it.
    ///
    /// Dates that are further away than 64 bits of nanoseconds hold, three centuries, are ``distantPast`` or
    /// ``distantFuture``; so are Foundation's own distant dates.
    /// - Precondition: The date is a number.
    public init(_ date: Date) {
        let seconds = date.timeIntervalSinceReferenceDate
        precondition(!seconds.isNaN, "a date that is not a number comes neither early nor late")
        guard abs(seconds) < Clocks.mostSeconds else {
            self = seconds > 0 ? .distantFuture : .distantPast
            return
        }
        // Exact: the fraction of a Double's seconds needs no rounding, and its nanoseconds are rounded up.
        let whole = seconds.rounded(.down)
        let fraction = Int64(((seconds - whole) * 1e9).rounded(.up))
        let nanoseconds = Int128(Int64(whole) + Clocks.referenceDate) * 1_000_000_000 + Int128(fraction)
        self.init(uptimeNanoseconds: Int64(clamping: nanoseconds - Int128(Clocks.wallOffset)))
    }
}

extension Date {
    /// The date of `deadline`, by what the two clocks say now. A deadline that was made from a date of our times gives
    /// that date again, exactly, unless the system's date has been set meanwhile.
    public init(_ deadline: Deadline) {
        switch deadline {
        case .distantFuture: self = .distantFuture
        case .distantPast: self = .distantPast
        default:
            let (seconds, nanoseconds) = (Int128(deadline.uptimeNanoseconds) + Int128(Clocks.wallOffset))
                .quotientAndRemainder(dividingBy: 1_000_000_000)
            let whole = Double(Int64(seconds) - Clocks.referenceDate)
            self.init(timeIntervalSinceReferenceDate: whole + Double(Int64(nanoseconds)) / 1e9)
        }
    }
}

/// What the system's two clocks have to do with each other.
private enum Clocks {
    /// Foundation's reference date, the beginning of 2001, in seconds since that of 1970.
    static var referenceDate: Int64 { 978_307_200 }

    /// Some three thousand years: more than enough, and still exact.
    static var mostSeconds: Double { 1e11 }

    /// The date on the wall, in nanoseconds since 1970, less the monotonic clock's.
    ///
    /// Both clocks go by the same ticks, so this changes only when somebody sets the date; and the coarse ones are what
    /// the two were at the same tick, so their difference is exact (clock_gettime(2)).
    static var wallOffset: Int64 {
        for _ in 0..<mostAttempts {
            let before = reactor_clock_nanoseconds(CLOCK_MONOTONIC_COARSE)
            let wall = reactor_clock_nanoseconds(CLOCK_REALTIME_COARSE)
            if reactor_clock_nanoseconds(CLOCK_MONOTONIC_COARSE) == before { return wall - before }
        }
        // A kernel without ticks to go by: the other way round a deadline could be early.
        let wall = reactor_clock_nanoseconds(CLOCK_REALTIME)
        return wall - reactor_clock_nanoseconds(CLOCK_MONOTONIC)
    }

    /// A tick seldom comes between; some kernels have none.
    private static var mostAttempts: Int { 8 }
}
