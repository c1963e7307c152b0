extension Timer.State {
    /// How late the timer may be, in nanoseconds, to share a wake-up: its tolerance, or a little that nobody
    /// asked for.
    ///
    /// A sixty-fourth of its interval, half a millisecond at most, is what a repeating timer's jitter is
    /// anyway; alone it still fires at its date, but thousands of them share some wake-ups.
    func window(of period: Int64) -> Int64 { max(tolerance, min(period / 64, 500_000)) }

    /// Sets the next date of a repeating timer, unless its callout has set one.
    mutating func advance(by period: Int64, now: Int64) {
        guard isValid, period > 0, !isMoved else { return }
        let next = Timer.nextDate(after: due, every: period, now: now)
        setDate(next, due: next)
    }
}

extension Timer {
    /// The smallest `date + k * period`, k at least one, that is later than `now`.
    static func nextDate(after date: Int64, every period: Int64, now: Int64) -> Int64 {
        let next = date.addingSaturated(period)
        guard next <= now else { return next }
        let missed = (now - date) / period
        let (offset, overflow) = (missed + 1).multipliedReportingOverflow(by: period)
        return overflow ? .max : date.addingSaturated(offset)
    }
}
