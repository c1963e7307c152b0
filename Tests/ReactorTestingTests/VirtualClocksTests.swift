import Reactor
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
}
