import CReactorTestSupport
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ClockTimerTests {
    private let loop = RunLoop.current

    @Test(arguments: [ClockTimer.Clock.wallClock, .bootTime])
    func `a timer fires once at the date that it gets, and no earlier, in its mode`(clock: ClockTimer.Clock)
        throws
    {
        let date = clock.now + .milliseconds(2)
        var events: [ClockTimer.Event] = []
        let timer = try ClockTimer(clock, at: nil) { timer, event in
            if event == .clockWasSet { return }
            #expect(clock.now >= date && timer.fireDate == nil)
            events.append(event)
            // A date in the past is due.
            if events.count == 1 { timer.fireDate = .init(sinceEpoch: .zero) } else { timer.cancel() }
        }
        try loop.add(timer, forMode: .custom)
        loop.poll(.custom)
        timer.fireDate = date
        #expect(timer.fireDate == date)
        #expect(loop.run(in: .default) == .finished)
        #expect(loop.run(in: .custom) == .finished)
        #expect(events == [.fired(count: 1), .fired(count: 1)])
    }

    @Test func `a cancelled timer may get a date, and does not fire`() throws {
        let timer = try ClockTimer(.bootTime, at: nil) { _, _ in Issue.record("It has fired.") }
        try loop.add(timer, forMode: .default)
        timer.cancel()
        timer.fireDate = ClockTimer.Clock.bootTime.now
        #expect(loop.run(in: .default) == .finished && !timer.isValid)
    }

    @Test func `an interval keeps its phase, and missed firings are one`() throws {
        try withVirtualTime { time in
            let (clock, interval) = (ClockTimer.Clock.bootTime, Duration.seconds(2))
            let first = clock.now - .seconds(9)
            var counts: [Int] = []
            let timer = try ClockTimer(clock, at: first, every: interval) { timer, event in
                guard case .fired(let count) = event else { return }
                counts.append(count)
                #expect(timer.fireDate == first + interval * counts.reduce(0, +))
                time.skip(interval * counts.count)
                if counts.count == 4 { timer.cancel() }
            }
            try loop.add(timer, forMode: .default)
            #expect(loop.run(in: .default) == .finished)
            #expect(counts == [5, 1, 2, 3])
        }
    }

    @Test(arguments: [ClockTimer.Clock.wallClock, .bootTime])
    func `a timer dated before its clock's epoch keeps its phase`(clock: ClockTimer.Clock) throws {
        let day = Duration.seconds(86_400)
        // The last date would be the next one if the kernel counted from the epoch.
        for (date, interval) in [
            (.seconds(-100), .seconds(3600)), (clock.now.sinceEpoch - day, day), (.zero, .seconds(7)),
            (.seconds(-7), .seconds(7)), (clock.now.sinceEpoch - day * 30, day * 365),
            (.seconds(-62_135_769_600), .seconds(3600)),
        ] as [(Duration, Duration)] {
            let date = ClockTimer.Instant(sinceEpoch: date)
            var total = 0
            let timer = try ClockTimer(clock, at: date, every: interval) { timer, event in
                guard case .fired(let count) = event else { return }
                total += count
                #expect(timer.fireDate == date + interval * count)
                #expect(timer.fireDate! > clock.now && timer.fireDate! <= clock.now + interval)
                timer.cancel()
            }
            try loop.add(timer, forMode: .default)
            #expect(loop.run(in: .default) == .finished)
            #expect(total > 0)
        }
    }

    @Test func `an interval has at least a nanosecond`() throws {
        let start = ClockTimer.Clock.bootTime.now
        var calls = 0
        let timer = try ClockTimer(.bootTime, at: start, every: .nanoseconds(1) / 1000) { timer, _ in
            #expect(timer.interval == .nanoseconds(1) && timer.fireDate! > start)
            calls += 1
            if calls == 2 { timer.cancel() }
        }
        try loop.add(timer, forMode: .default)
        #expect(loop.run(in: .default) == .finished)
    }

    @Test func `that the clock was set is reported also when setting the date has found it out`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let loop = RunLoop.current
                let date = ClockTimer.Clock.wallClock.now + .seconds(3600)
                var events: [ClockTimer.Event] = []
                let timer = try ClockTimer(.wallClock, at: date) { timer, event in
                    events.append(event)
                    #expect(timer.fireDate == date + .seconds(1))
                    if events.count == 2 { timer.cancel() } else { timer.fireDate = date + .seconds(1) }
                }
                try loop.add(timer, forMode: .default)
                // As the kernel answers once, when the clock was set since the timer was armed.
                try #require(reactor_test_refuse_timerfd_settime(ECANCELED))
                timer.fireDate = date + .seconds(1)
                #expect(loop.run(in: .default) == .finished)
                #expect(events == [.clockWasSet, .clockWasSet])
            }
        }
    }
}
