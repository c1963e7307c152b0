import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct TimerCreationTests {
    private let loop = RunLoop.current

    @Test func `a made timer is in no loop, a scheduled one in the default mode of the thread's loop alone`()
    {
        let made = Timer(fireDate: .distantPast) { _ in Issue.record("fired without a loop") }
        #expect(loop.poll() == .finished)
        let scheduled = Timer.scheduled(after: .seconds(60)) { _ in Issue.record("fired early") }
        loop.poll()
        for mode in [RunLoop.Mode.default, .common, .tracking, .custom] {
            #expect(!loop.contains(made, forMode: mode))
            #expect(loop.contains(scheduled, forMode: mode) == (mode == .default))
        }
    }

    @Test(arguments: [true, false])
    func `a timer made with an interval fires first one interval from now`(repeats: Bool) {
        let before = Deadline.now
        let timer = Timer(interval: .milliseconds(70), repeats: repeats) { _ in }
        #expect(timer.fireDate >= before + .milliseconds(70))
        #expect(timer.fireDate <= .now + .milliseconds(70))
        #expect(timer.interval == (repeats ? .milliseconds(70) : .zero))
    }

    @Test(arguments: [Duration.zero, .seconds(-1), .nanoseconds(1), .microseconds(99)])
    func `a repeating timer's interval is at least a tenth of a millisecond`(interval: Duration) {
        #expect(Timer(interval: interval, repeats: true) { _ in }.interval == .microseconds(100))
        var dates: [Deadline] = []
        Timer.scheduled(every: interval) { timer in
            dates.append(timer.fireDate)
            if dates.count == 5 { timer.invalidate() }
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(zip(dates, dates.dropFirst()).allSatisfy { $1 - $0 >= .microseconds(100) })
    }

    @Test func `an interval beyond the clock's end is kept within it`() {
        let timer = Timer(interval: .seconds(Int64.max), repeats: true) { _ in }
        #expect(timer.fireDate == .distantFuture)
        #expect(timer.interval == .nanoseconds(Int64.max))
    }

    @Test func `fireDate returns a past date as it was set, and the phase begins with the timer`() {
        let given = Deadline.now - .seconds(930)
        let before = Deadline.now
        let timer = Timer(fireDate: given, interval: .seconds(100), repeats: true) { timer in
            #expect(timer.fireDate == given)
        }
        let after = Deadline.now
        #expect(timer.fireDate == given)
        loop.add(timer, forMode: .default)
        loop.poll()
        #expect(timer.fireDate >= before + .seconds(100))
        #expect(timer.fireDate <= after + .seconds(100))
    }

    @Test func `a timer of the distant future holds the loop and is never due`() {
        let timer = Timer(fireDate: .distantFuture, interval: .seconds(1), repeats: true) { _ in
            Issue.record("the distant future has come")
        }
        loop.add(timer, forMode: .default)
        #expect(loop.run(in: .default, until: .after(milliseconds: 2)) == .timedOut)
        #expect(timer.fireDate == .distantFuture)
    }

    @Test func `tolerance is zero unless set, never negative, and at most half of a repeating interval`() {
        #expect(Timer(interval: .seconds(1)) { _ in }.tolerance == .zero)
        for (asked, once, repeating) in [(-1, 0, 0), (300, 300, 300), (501, 501, 500), (9000, 9000, 500)] {
            for (repeats, kept) in [(false, once), (true, repeating)] {
                let tolerance = Duration.milliseconds(asked)
                let made = Timer(interval: .seconds(1), repeats: repeats, tolerance: tolerance) { _ in }
                let set = Timer(interval: .seconds(1), repeats: repeats) { _ in }
                set.tolerance = tolerance
                for timer in [made, set] { #expect(timer.tolerance == .milliseconds(kept)) }
            }
        }
    }
}
