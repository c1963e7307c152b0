public import Foundation
public import Reactor
public import SystemPackage

extension ClockTimer {
    /// Makes a timer that fires at each date that matches `components`, such as every day at 03:00.
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
    ) throws(Errno) {
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
    /// A time that a change to summer time by an hour skips counts as the first moment after the change; of one
    /// that the end of summer time repeats, the first counts. Months without a day, such as `day: 31`, are
    /// passed over.
    public static func nextDate(
        matching components: DateComponents, after date: Date, in calendar: Calendar = .current
    ) -> Date? {
        var (date, day) = (date, components)
        (day.hour, day.minute, day.second, day.nanosecond) = (nil, nil, nil, nil)
        // The 29th of February is missing in at most seven years in a row. Other days are missing for good.
        for _ in 0..<20 {
            guard
                let next = calendar.nextDate(
                    after: date, matching: components, matchingPolicy: .nextTime, repeatedTimePolicy: .first)
            else { return nil }
            // In place of a missing day Foundation answers one after it.
            if calendar.date(next, matchesComponents: day) { return next }
            date = next
        }
        return nil
    }

    /// The next date, since 1970.
    private static func date(matching components: DateComponents, in calendar: Calendar) -> Duration? {
        nextDate(matching: components, after: Date(), in: calendar).map { .seconds($0.timeIntervalSince1970) }
    }
}
