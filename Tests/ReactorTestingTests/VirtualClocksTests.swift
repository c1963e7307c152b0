import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// The wall clock and the time since boot.
@Suite(.runLoop) struct VirtualClocksTests {
    @Test func `a timer on the wall clock fires when that comes to its date`() throws {
        try withVirtualTime { time in
            let start = time.wallClock
            var events: [(ClockTimer.Event, Duration)] = []
            let timer = try ClockTimer(.wallClock, at: start + .seconds(10), every: .seconds(10)) {
                _, event in
                events.append((event, time.wallClock - start))
            }
            try RunLoop.current.add(timer, forMode: .default)
            time.advance(by: .seconds(20))
            #expect(events.map(\.0) == [.fired(count: 1), .fired(count: 1)])
            #expect(events.map(\.1) == [.seconds(10), .seconds(20)])
            time.wallClock = start + .seconds(105)
            time.advance(by: .zero)
            #expect(events.map(\.0).dropFirst(2) == [.clockWasSet, .fired(count: 8)])
            timer.cancel()
        }
    }

    @Test func `a machine that sleeps moves the boot time and no timer`() throws {
        try withVirtualTime { time in
            var fired: [String] = []
            let boot = try ClockTimer(.bootTime, at: ClockTimer.Clock.bootTime.now + .seconds(60)) { _, _ in
                fired.append("boot time")
            }
            try RunLoop.current.add(boot, forMode: .default)
            Timer.scheduled(after: .seconds(60)) { _ in fired.append("timer") }
            time.suspendMachine(for: .seconds(60))
            time.advance(by: .zero)
            #expect(fired == ["boot time"])
            time.advance(by: .seconds(60))
            #expect(fired == ["boot time", "timer"])
            boot.cancel()
        }
    }

    @Test func `the clock passes the date of a clock timer that is in no loop`() throws {
        try withVirtualTime { time in
            let (loop, clock) = (RunLoop.current, ClockTimer.Clock.bootTime)
            let timer = try ClockTimer(clock, at: clock.now + .seconds(1)) { _, _ in }
            Timer.scheduled(after: .seconds(2)) { _ in loop.stop() }
            #expect(loop.run(in: .default) == .stopped)
            timer.cancel()
        }
    }

    // MARK: Clock timers that fire after virtual time

    @Test func `a repeating timer continues after virtual time that ends before its firings are served`()
        throws
    {
        let (loop, clock) = (RunLoop.current, ClockTimer.Clock.bootTime)
        var counts: [Int] = []
        let timer = try withVirtualTime { time in
            let timer = try ClockTimer(clock, at: clock.now + .seconds(1), every: .milliseconds(1)) {
                _, event in
                if case .fired(let count) = event { counts.append(count) }
            }
            time.skip(.seconds(2))
            return timer
        }
        try loop.add(timer, forMode: .default)
        while counts.count < 2 { loop.run(in: .default, returnAfterSourceHandled: true) }
        #expect(counts[0] >= 1001)
        timer.cancel()
    }

    @Test func `a timer does not fire because virtual time ends after its clock was set`() throws {
        let (loop, clock) = (RunLoop.current, ClockTimer.Clock.wallClock)
        var events: [ClockTimer.Event] = []
        let timer = try withVirtualTime { time in
            let timer = try ClockTimer(clock, at: clock.now + .seconds(3600)) { _, event in
                events.append(event)
            }
            time.wallClock = time.wallClock + .seconds(60)
            return timer
        }
        try loop.add(timer, forMode: .default)
        loop.poll()
        #expect(events == [])
        timer.cancel()
    }
}
