import CReactorTestSupport
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ClockTimerTests {
    @Test(arguments: [ClockTimer.Clock.wallClock, .bootTime])
    func `a timer fires at its date, and no earlier`(clock: ClockTimer.Clock) async throws {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let date = clock.now + .milliseconds(5)
            var events: [ClockTimer.Event] = []
            let timer = try ClockTimer(clock, at: date) { timer, event in
                if event == .clockWasSet { return }
                #expect(loop.isCurrent && clock.now >= date && timer.fireDate == nil)
                events.append(event)
                timer.close()
            }
            #expect(timer.fireDate == date)
            try loop.add(timer, forMode: .default)
            #expect(loop.run(in: .default) == .finished)
            #expect(events == [.fired(count: 1)])
            #expect("\(timer)".hasSuffix("(closed)"))
        }
    }

    @Test func `an interval keeps its phase, and missed firings are one`() throws {
        let loop = RunLoop.current
        let (start, interval) = (ClockTimer.Clock.bootTime.now, Duration.milliseconds(2))
        var total = 0
        let timer = try ClockTimer(.bootTime, at: start - .milliseconds(9), every: interval) {
            timer, event in
            guard case .fired(let count) = event else {
                Issue.record("the clock was set")
                return
            }
            if total == 0 { #expect(count >= 5) }
            total += count
            #expect(timer.fireDate == start - .milliseconds(9) + interval * total)
            if total > 20 { timer.close() }
        }
        try loop.add(timer, forMode: .default)
        #expect(loop.run(in: .default) == .finished)
    }

    @Test func `a timer dated before its clock's epoch keeps its phase`() async throws {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let day = Duration.seconds(86_400)
            for clock in [ClockTimer.Clock.wallClock, .bootTime] {
                // The last date would be the next one if the kernel counted from the epoch.
                for (date, interval) in [
                    (.seconds(-100), .seconds(3600)), (clock.now - day, day), (.zero, .seconds(7)),
                    (.seconds(-7), .seconds(7)), (clock.now - day * 30, day * 365),
                    (.seconds(-62_135_769_600), .seconds(3600)),
                ] as [(Duration, Duration)] {
                    var total = 0
                    let timer = try ClockTimer(clock, at: date, every: interval) { timer, event in
                        guard case .fired(let count) = event else { return }
                        total += count
                        #expect(timer.fireDate == date + interval * count)
                        #expect(timer.fireDate! > clock.now && timer.fireDate! <= clock.now + interval)
                        timer.close()
                    }
                    try loop.add(timer, forMode: .default)
                    #expect(loop.run(in: .default) == .finished)
                    #expect(total > 0)
                }
            }
        }
    }

    @Test func `an interval has at least a nanosecond`() throws {
        let loop = RunLoop.current
        let start = ClockTimer.Clock.bootTime.now
        var calls = 0
        let interval = Duration.nanoseconds(1) / 1000
        let timer = try ClockTimer(.bootTime, at: start, every: interval) { timer, _ in
            #expect(timer.interval == .nanoseconds(1) && timer.fireDate! > start)
            calls += 1
            if calls == 2 { timer.close() }
        }
        try loop.add(timer, forMode: .default)
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == 2)
    }

    @Test func `a timer without a date fires when it gets one`() throws {
        let loop = RunLoop.current
        for clock in [ClockTimer.Clock.wallClock, .bootTime] {
            var calls = 0
            let timer = try ClockTimer(clock, at: nil) { timer, _ in
                calls += 1
                // A date in the past is due.
                if calls == 1 { timer.fireDate = .zero } else { timer.close() }
            }
            try loop.add(timer, forMode: .default)
            loop.poll()
            #expect(calls == 0)
            timer.fireDate = clock.now
            #expect(loop.run(in: .default) == .finished)
            #expect(calls == 2)
        }
    }

    @Test func `a timer is in the modes that it was added to, and described there`() throws {
        let loop = RunLoop.current
        var calls = 0
        let timer = try ClockTimer(.wallClock, at: .zero) { _, _ in calls += 1 }
        try loop.add(timer, forMode: .custom)
        loop.poll()
        #expect(calls == 0)
        #expect(loop.debugDescription.contains("timer on the wall clock: in -"))
        loop.poll(.custom)
        #expect(calls == 1)
        #expect(loop.debugDescription.contains("timer on the wall clock: never"))
        #expect(timer.explain().contains("it has no fire date"))
        timer.close()
        #expect(loop.poll(.custom) == .finished)
    }

    @Test func `closing a timer releases its closure and its descriptor`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                let loop = RunLoop.current
                let freed = Countdown(6)
                var counts: [Int] = []
                // The loop opens its own descriptors in the first round.
                for round in 0..<6 {
                    let canary = AtEnd { freed.count() }
                    let timer = try ClockTimer(.bootTime, at: nil) { _, _ in withExtendedLifetime(canary) {} }
                    if round.isMultiple(of: 2) {
                        try loop.add(timer, forMode: .default)
                        timer.close()
                    }
                    counts.append(ownDescriptors())
                }
                freed.wait()
                // A timer that is not closed is freed at the end of its round.
                #expect(
                    counts == [counts[0], counts[0] + 1, counts[0], counts[0] + 1, counts[0], counts[0] + 1])
            }
        }
    }

    @Test func `that the clock was set is reported also when setting the date has found it out`() async {
        await #expect(processExitsWith: .success) {
            try await onItsOwnThread {
                let loop = RunLoop.current
                let date = ClockTimer.Clock.wallClock.now + .seconds(3600)
                var events: [ClockTimer.Event] = []
                let timer = try ClockTimer(.wallClock, at: date) { timer, event in
                    events.append(event)
                    #expect(timer.fireDate == date + .seconds(1))
                    if events.count == 2 { timer.close() } else { timer.fireDate = date + .seconds(1) }
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

    /// Sets the clock of the machine by a nanosecond, and back: only where that is asked for.
    @Test(.enabled(if: getenv("REACTOR_SET_CLOCK") != nil))
    func `a timer on the wall clock is told when that is set, and keeps its date`() throws {
        let loop = RunLoop.current
        let date = ClockTimer.Clock.wallClock.now + .seconds(3600)
        var events: [ClockTimer.Event] = []
        let timers = try [date, nil].map { date in
            try ClockTimer(.wallClock, at: date) { timer, event in
                events.append(event)
                #expect(timer.fireDate == date)
                timer.close()
            }
        }
        for timer in timers { try loop.add(timer, forMode: .default) }
        loop.poll()
        for shift in [1, 999_999_999] {
            // The nanoseconds are never negative.
            var change = timex()
            change.modes = UInt32(ADJ_SETOFFSET | ADJ_NANO)
            change.time = timeval(tv_sec: shift == 1 ? 0 : -1, tv_usec: shift)
            try #require(adjtimex(&change) >= 0)
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(events == [.clockWasSet, .clockWasSet])
    }

    @Test func `a task awaits firings`() async throws {
        try await withRunLoopThread(name: "clock") { thread in
            var total = 0
            let firings = try thread.runLoop.firings(of: .bootTime, at: .zero, every: .milliseconds(1))
            for try await case .fired(let count) in firings {
                total += count
                if total > 1_000 { break }
            }
            #expect(total > 1_000)
        }
    }

    @Test func `a sequence ends with its loop's thread`() async throws {
        let thread = try RunLoopThread(name: "ending")
        let loop = thread.runLoop
        let firings = try loop.firings(of: .bootTime, at: .seconds(1 << 30))
        let changes = try loop.fileEvents(at: "/tmp/.no-such-file")
        let tasks = [Task { for try await _ in firings {} }, Task { for try await _ in changes {} }]
        await yieldUntil { loop.isWaiting }
        try await onItsOwnThread { thread.stop() }
        for task in tasks { try await task.value }
    }
}
