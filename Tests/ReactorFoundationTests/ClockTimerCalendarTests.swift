import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct ClockTimerCalendarTests {
    private static let (berlin, nuuk, chatham) = ("Europe/Berlin", "America/Nuuk", "Pacific/Chatham")

    private static func clock(_ hour: Int, _ minute: Int = 0) -> DateComponents {
        DateComponents(hour: hour, minute: minute)
    }

    @Test(
        arguments: [
            // Summer time begins on 2026-03-29 at 02:00, and ends on 2026-10-25 at 03:00.
            (berlin, clock(3), "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00"),
            (berlin, clock(2, 30), "2026-03-28T12:00:00+01:00", "2026-03-29T03:00:00+02:00"),
            (berlin, clock(2, 30), "2026-03-29T12:00:00+02:00", "2026-03-30T02:30:00+02:00"),
            (berlin, clock(3), "2026-10-24T12:00:00+02:00", "2026-10-25T03:00:00+01:00"),
            (berlin, clock(2, 30), "2026-10-24T12:00:00+02:00", "2026-10-25T02:30:00+02:00"),
            (berlin, clock(2, 30), "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"),
            (berlin, clock(3), "2026-06-01T03:00:00+02:00", "2026-06-02T03:00:00+02:00"),
            (berlin, clock(0), "2026-12-31T23:59:59+01:00", "2027-01-01T00:00:00+01:00"),
            // The clocks go from Saturday 23:00 to Sunday 00:00.
            (nuuk, clock(23, 30), "2026-03-28T12:00:00-02:00", "2026-03-29T00:00:00-01:00"),
            (nuuk, clock(23, 30), "2026-03-29T00:00:00-01:00", "2026-03-29T23:30:00-01:00"),
            (
                nuuk, DateComponents(hour: 23, weekday: 7), "2026-03-28T12:00:00-02:00",
                "2026-03-29T00:00:00-01:00"
            ),
            (
                nuuk, DateComponents(day: 28, hour: 23), "2026-03-01T12:00:00-02:00",
                "2026-03-29T00:00:00-01:00"
            ),
            // From 00:00 to 01:00.
            ("Asia/Beirut", clock(0), "2026-03-28T12:00:00+02:00", "2026-03-29T01:00:00+03:00"),
            // From 02:45 to 03:45, and back from 03:45 to 02:45.
            (chatham, clock(3), "2026-09-27T03:45:00+13:45", "2026-09-28T03:00:00+13:45"),
            (chatham, clock(3, 45), "2026-04-04T12:00:00+13:45", "2026-04-05T03:45:00+12:45"),
            // From the end of Thursday to the beginning of Saturday.
            ("Pacific/Apia", clock(3), "2011-12-29T12:00:00-10:00", "2011-12-31T03:00:00+14:00"),
            // A month without the day has no firing.
            (
                berlin, DateComponents(day: 31, hour: 0), "2026-02-01T00:00:00+01:00",
                "2026-03-31T00:00:00+02:00"
            ),
            (
                berlin, DateComponents(day: 30, hour: 9), "2026-01-30T09:00:00+01:00",
                "2026-03-30T09:00:00+02:00"
            ),
            (
                berlin, DateComponents(month: 2, day: 29), "2096-03-01T00:00:00+01:00",
                "2104-02-29T00:00:00+01:00"
            ),
            (berlin, DateComponents(month: 2, day: 30), "2026-01-01T00:00:00+01:00", nil),
        ] as [(String, DateComponents, String, String?)])
    func `no firing is missed or repeated, also when the clocks change`(
        zone: String, components: DateComponents, after: String, expected: String?
    ) throws {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = try #require(TimeZone(identifier: zone))
        let format = ISO8601DateFormatter()
        let next = ClockTimer.nextDate(
            matching: components, after: try #require(format.date(from: after)), in: calendar)
        #expect(next == expected.flatMap(format.date))
    }

    @Test func `a date is an instant of the wall clock, and back`() {
        let date = Date(timeIntervalSince1970: 1_795_512_599.25)
        #expect(ClockTimer.Instant(date).sinceEpoch == .milliseconds(1_795_512_599_250))
        #expect(Date(ClockTimer.Instant(date)) == date)
    }

    @Test func `dates and deadlines correspond in virtual time, too`() {
        withVirtualTime { time in
            time.advance(by: .seconds(7200))
            let seconds = Date(Deadline.now).timeIntervalSince1970
            #expect(abs(seconds - Double(time.wallClock.sinceEpoch.components.seconds)) < 2)
            let fired = Shared(0)
            let date = Date(timeIntervalSince1970: seconds + 3600)
            RunLoop.current.add(
                Timer(fire: date, interval: 0, repeats: false) { _ in fired.value += 1 }, forMode: .default)
            time.advance(by: .seconds(3598))
            #expect(fired.value == 0)
            time.advance(by: .seconds(4))
            #expect(fired.value == 1)
        }
    }

    @Test func `the timer fires once at each date that matches`() throws {
        try withVirtualTime { time in
            // Two hours in which `now / .seconds(1)` is less than some of the dates.
            time.wallClock = .init(sinceEpoch: .seconds(1_795_512_599))
            var dates: [ClockTimer.Instant] = []
            let timer = try ClockTimer(matching: DateComponents(second: 0)) { timer in
                let now = ClockTimer.Clock.wallClock.now
                dates.append(now)
                guard let next = timer.fireDate, next > now else {
                    Issue.record("due again at \(now)")
                    return timer.cancel()
                }
            }
            let first = try #require(timer.fireDate)
            try RunLoop.current.add(timer, forMode: .default)
            time.advance(by: .seconds(2 * 3600))
            #expect(dates == (0..<120).map { first + .seconds(60 * $0) })
        }
    }
}
