import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct ClockTimerCalendarTests {
    private static let berlin = {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = TimeZone(identifier: "Europe/Berlin")!
        return calendar
    }()

    @Test(arguments: [
        // Summer time begins on 2026-03-29 at 02:00, and ends on 2026-10-25 at 03:00.
        (3, 0, "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00"),
        (2, 30, "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00"),
        (2, 30, "2026-03-29T12:00:00+02:00", "2026-03-30T02:30:00+02:00"),
        (3, 0, "2026-10-24T12:00:00+02:00", "2026-10-25T03:00:00+01:00"),
        (2, 30, "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00"),
        (2, 30, "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"),
        (3, 0, "2026-06-01T03:00:00+02:00", "2026-06-02T03:00:00+02:00"),
        (0, 0, "2026-12-31T23:59:59+01:00", "2027-01-01T00:00:00+01:00"),
    ])
    func `every day has one firing, also when the clocks change`(
        hour: Int, minute: Int, after: String, expected: String
    ) throws {
        let format = ISO8601DateFormatter()
        let date = try #require(format.date(from: after))
        let components = DateComponents(hour: hour, minute: minute)
        let next = ClockTimer.nextDate(matching: components, after: date, in: Self.berlin)
        #expect(next == format.date(from: expected))
    }

    @Test(arguments: [
        // The clocks go from Saturday 23:00 to Sunday 00:00.
        (
            "America/Nuuk", DateComponents(hour: 23, minute: 30), "2026-03-28T12:00:00-02:00",
            "2026-03-29T00:00:00-01:00"
        ),
        (
            "America/Nuuk", DateComponents(hour: 23, minute: 30), "2026-03-29T00:00:00-01:00",
            "2026-03-29T23:30:00-01:00"
        ),
        (
            "America/Nuuk", DateComponents(hour: 23, weekday: 7), "2026-03-28T12:00:00-02:00",
            "2026-03-29T00:00:00-01:00"
        ),
        (
            "America/Nuuk", DateComponents(day: 28, hour: 23), "2026-03-01T12:00:00-02:00",
            "2026-03-29T00:00:00-01:00"
        ),
        // From 00:00 to 01:00.
        ("Asia/Beirut", DateComponents(hour: 0), "2026-03-28T12:00:00+02:00", "2026-03-29T01:00:00+03:00"),
        // From 02:45 to 03:45, and back from 03:45 to 02:45.
        (
            "Pacific/Chatham", DateComponents(hour: 3), "2026-09-27T03:45:00+13:45",
            "2026-09-28T03:00:00+13:45"
        ),
        (
            "Pacific/Chatham", DateComponents(hour: 3, minute: 45), "2026-04-04T12:00:00+13:45",
            "2026-04-05T03:45:00+12:45"
        ),
        // From the end of Thursday to the beginning of Saturday.
        ("Pacific/Apia", DateComponents(hour: 3), "2011-12-29T12:00:00-10:00", "2011-12-31T03:00:00+14:00"),
    ])
    func `no firing is missed or repeated where the clocks change at any time of the day`(
        zone: String, components: DateComponents, after: String, expected: String
    ) throws {
        var calendar = Self.berlin
        calendar.timeZone = try #require(TimeZone(identifier: zone))
        let format = ISO8601DateFormatter()
        let date = try #require(format.date(from: after))
        let next = ClockTimer.nextDate(matching: components, after: date, in: calendar)
        #expect(next == format.date(from: expected))
    }

    @Test(arguments: [
        (DateComponents(day: 31, hour: 0), "2026-02-01T00:00:00+01:00", "2026-03-31T00:00:00+02:00"),
        (DateComponents(day: 30, hour: 9), "2026-01-30T09:00:00+01:00", "2026-03-30T09:00:00+02:00"),
        (DateComponents(month: 2, day: 29), "2096-03-01T00:00:00+01:00", "2104-02-29T00:00:00+01:00"),
        (DateComponents(month: 2, day: 30), "2026-01-01T00:00:00+01:00", nil),
    ])
    func `a month without the day has no firing`(
        components: DateComponents, after: String, expected: String?
    ) throws {
        let format = ISO8601DateFormatter()
        let date = try #require(format.date(from: after))
        let next = ClockTimer.nextDate(matching: components, after: date, in: Self.berlin)
        #expect(next == expected.flatMap(format.date))
    }

    @Test func `the timer fires at the next date that matches, and then waits for the one after`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            var dates: [Duration?] = []
            let start = ClockTimer.Clock.wallClock.now
            // Every second.
            let timer = try ClockTimer(matching: DateComponents(nanosecond: 0)) { timer in
                dates.append(timer.fireDate)
                timer.close()
            }
            let first = try #require(timer.fireDate)
            #expect(first > start && first <= ClockTimer.Clock.wallClock.now + .seconds(1))
            try loop.add(timer, forMode: .default)
            while dates.isEmpty { _ = loop.run(mode: .default, before: .distantFuture) }
            let next = try #require(dates.first ?? nil)
            #expect(next > first)
        }
    }
}
