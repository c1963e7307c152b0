public import Foundation
public import Reactor

extension ClockTimer {
    /// Creates a timer that fires at each date that matches `components`, such as every day at 03:00.
    ///
    /// ```swift
    /// let nightly = try ClockTimer(matching: DateComponents(hour: 3, minute: 0)) { _ in cleanUp() }
    /// try RunLoop.main.add(nightly, forMode: .common)
    /// ```
    ///
    /// Dates follow the calendar's time zone across its changes, as ``nextDate(matching:after:in:)`` says,
    /// and the wall clock when that is set: a date that it skips fires at once, and one that it repeats fires
    /// again. Dates that pass while the loop is busy or the system is suspended are one firing.
    ///
    /// - Parameters:
    ///   - components: What must match: `hour: 3, minute: 0`, `weekday: 2, hour: 9`, `minute: 0`, … Smaller
    ///     units that are not given count as zero.
    ///   - calendar: The calendar with its time zone.
    ///   - handler: Called with the timer, whose `fireDate` is then that of the next firing.
    /// - Throws: As `ClockTimer.init(_:at:every:handler:)`.
    public convenience init(
        matching components: DateComponents, in calendar: Calendar = .current,
        handler: @escaping (ClockTimer) -> Void
    ) throws(IOError) {
        let next = { Self.date(matching: components, in: calendar) }
        try self.init(.wallClock, at: next()) { timer, event in
            guard case .fired = event else {
                // One that has been skipped is due, and fires.
                if let date = timer.fireDate, date > Clock.wallClock.now { timer.fireDate = next() }
                return
            }
            timer.fireDate = next()
            handler(timer)
        }
    }

    /// The first date after `date` that matches `components`; nil if there is none.
    ///
    /// A time skipped by a clock change becomes the first moment after it; a repeated time, its first occurrence. Skipped
    /// days and missing dates (`day: 31`) are passed over.
    public static func nextDate(
        matching components: DateComponents, after date: Date, in calendar: Calendar = .current
    ) -> Date? {
        let (zone, hasHour) = (calendar.timeZone, components.hour != nil)
        var (start, past) = (date, date)
        if hasHour, let last = zone.firstChange(after: date - .day, until: date) {
            past = max(past, last.end - 1)
        }
        // Each search is in a time zone without changes: at those Foundation leaves out some dates.
        while let match = calendar.withoutChanges(at: start).nextDate(
            after: past, matching: components, matchingPolicy: .strict)
        {
            guard let change = zone.firstChange(after: start, until: match) else { return match }
            let isSkipped = match < change.date + change.skipped && change.skipped < .day
            if hasHour, isSkipped { return change.date }
            start = change.date
            past = (hasHour ? change.end : change.date) - 1
        }
        return nil
    }

    /// The next date.
    private static func date(matching components: DateComponents, in calendar: Calendar) -> Instant? {
        let now = Clock.wallClock.now
        // Earlier than `now`, which a `Double` may round up, past a date that is still to come; it also rounds
        // down, so what is found may be a date at which the timer has just fired.
        var match = Date(now) - 0.001
        while let next = nextDate(matching: components, after: match, in: calendar) {
            let date = Instant(next)
            if date > now { return date }
            match = next
        }
        return nil
    }
}

extension ClockTimer.Instant {
    /// The date of the wall clock that `date` is, to whole nanoseconds where a `Date` has them.
    ///
    /// - Precondition: The date is finite.
    public init(_ date: Date) { self.init(sinceEpoch: .seconds(date.timeIntervalSince1970)) }
}

extension Date {
    /// The date that `instant` is, if it is one of the wall clock.
    public init(_ instant: ClockTimer.Instant) {
        self.init(timeIntervalSince1970: instant.sinceEpoch / .seconds(1))
    }
}

/// A change of the offset from Greenwich.
private struct OffsetChange {
    let date: Date
    /// The time that clocks skip; negative if they repeat it.
    let skipped: TimeInterval

    /// When no time is a repetition any more.
    var end: Date { date + max(0, -skipped) }
}

extension TimeZone {
    fileprivate func firstChange(after start: Date, until end: Date) -> OffsetChange? {
        let offset = secondsFromGMT(for: start)
        var (before, after) = (start, min(start + .day, end))
        while secondsFromGMT(for: after) == offset {
            guard after < end else { return nil }
            (before, after) = (after, min(after + .day, end))
        }
        let skipped = TimeInterval(secondsFromGMT(for: after) - offset)
        // Changes are at whole seconds.
        var (low, high) = (
            before.timeIntervalSince1970.rounded(.down), after.timeIntervalSince1970.rounded(.up)
        )
        while high - low > 1 {
            let middle = ((low + high) / 2).rounded(.down)
            if secondsFromGMT(for: Date(timeIntervalSince1970: middle)) == offset {
                low = middle
            } else {
                high = middle
            }
        }
        return OffsetChange(date: Date(timeIntervalSince1970: high), skipped: skipped)
    }
}

extension Calendar {
    /// The same with the offset from Greenwich that its time zone has at `date`.
    fileprivate func withoutChanges(at date: Date) -> Calendar {
        var calendar = self
        calendar.timeZone = TimeZone(secondsFromGMT: timeZone.secondsFromGMT(for: date)) ?? timeZone
        return calendar
    }
}

extension TimeInterval {
    fileprivate static let day: TimeInterval = 86_400
}
