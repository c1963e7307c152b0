import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct TimerCreationTests {
    @Test func `a timer that is made but not added is in no loop`() async throws {
        let isScheduled = try await onItsOwnThread { () -> Bool in
            let timer = Timer(fireDate: .distantPast) { _ in Issue.record("fired without a loop") }
            let loop = RunLoop.current
            #expect(loop.poll() == .finished)
            return loop.contains(timer, forMode: .default)
        }
        #expect(!isScheduled)
    }

    @Test func `a scheduled timer is in the calling thread's loop, in the default mode alone`() async throws {
        let modes = try await onItsOwnThread { () -> [RunLoop.Mode] in
            let timer = Timer.scheduled(after: .seconds(60)) { _ in }
            return [.default, .common, .tracking, .custom].filter {
                RunLoop.current.contains(timer, forMode: $0)
            }
        }
        #expect(modes == [.default])
    }

    @Test(arguments: [true, false])
    func `a timer made with an interval fires first one interval from now`(repeats: Bool) {
        let before = Deadline.now
        let timer = Timer(interval: .milliseconds(70), repeats: repeats) { _ in }
        let after = Deadline.now
        #expect(timer.fireDate >= before + .milliseconds(70))
        #expect(timer.fireDate <= after + .milliseconds(70))
    }

    @Test func `a timer with an interval does not fire at once`() async throws {
        let trace = try await traced { loop, trace in
            loop.add(Timer(interval: .seconds(60)) { _ in trace("fired") }, forMode: .default)
            loop.poll()
        }
        #expect(trace.isEmpty)
    }

    @Test func `only a repeating timer has an interval`() {
        let once = Timer(fireDate: .now, interval: .seconds(3)) { _ in }
        let repeating = Timer(fireDate: .now, interval: .seconds(3), repeats: true) { _ in }
        #expect(once.interval == .zero)
        #expect(repeating.interval == .seconds(3))
        #expect(Timer(interval: .seconds(3)) { _ in }.interval == .zero)
    }

    @Test(arguments: [Duration.zero, .seconds(-1), .nanoseconds(1), .microseconds(99)])
    func `a repeating timer's interval is at least a tenth of a millisecond`(interval: Duration) {
        #expect(Timer(interval: interval, repeats: true) { _ in }.interval == .microseconds(100))
        #expect(
            Timer(fireDate: .now, interval: interval, repeats: true) { _ in }.interval == .microseconds(100))
    }

    @Test func `a repeating timer without an interval keeps firing`() async throws {
        let dates = try await onItsOwnThread { () -> [Deadline] in
            var dates: [Deadline] = []
            Timer.scheduled(every: .zero) { timer in
                dates.append(timer.fireDate)
                if dates.count == 5 { timer.invalidate() }
            }
            #expect(RunLoop.current.run(in: .default) == .finished)
            return dates
        }
        #expect(dates.count == 5)
        #expect(zip(dates, dates.dropFirst()).allSatisfy { $1 - $0 >= .microseconds(100) })
    }

    @Test(arguments: [Duration.zero, .seconds(-5)])
    func `a one-shot with no delay fires in the next pass and not before`(delay: Duration) async throws {
        let trace = try await onItsOwnThread { () -> [String] in
            var trace: [String] = []
            Timer.scheduled(after: delay) { _ in trace.append("fired") }
            trace.append("scheduled")
            #expect(RunLoop.current.run(in: .default) == .finished)
            return trace
        }
        #expect(trace == ["scheduled", "fired"])
    }

    @Test func `a date in the past means the first pass`() async throws {
        let trace = try await traced { loop, trace in
            loop.add(Timer(fireDate: .now - .seconds(9)) { _ in trace("past") }, forMode: .default)
            loop.add(Timer(fireDate: .distantPast) { _ in trace("distant past") }, forMode: .default)
            loop.poll()
        }
        #expect(trace == ["past", "distant past"])
    }

    @Test func `fireDate returns a past date as it was set, and the phase begins with the timer`()
        async throws
    {
        try await onItsOwnThread {
            let given = Deadline.now - .seconds(930)
            let before = Deadline.now
            let timer = Timer(fireDate: given, interval: .seconds(100), repeats: true) { timer in
                #expect(timer.fireDate == given)
            }
            let after = Deadline.now
            #expect(timer.fireDate == given)
            RunLoop.current.add(timer, forMode: .default)
            RunLoop.current.poll()
            #expect(timer.fireDate >= before + .seconds(100))
            #expect(timer.fireDate <= after + .seconds(100))
            timer.invalidate()
        }
    }

    @Test func `a timer of the distant future holds the loop and is never due`() {
        let timer = Timer(fireDate: .distantFuture, interval: .seconds(1), repeats: true) { _ in
            Issue.record("the distant future has come")
        }
        let loop = RunLoop.current
        loop.add(timer, forMode: .default)
        #expect(loop.run(in: .default, until: .after(milliseconds: 5)) == .timedOut)
        #expect(timer.fireDate == .distantFuture)
        timer.invalidate()
    }

    @Test func `an interval beyond the clock's end is kept within it`() {
        let timer = Timer(interval: .seconds(Int64.max), repeats: true) { _ in }
        #expect(timer.fireDate == .distantFuture)
        #expect(timer.interval == .nanoseconds(Int64.max))
    }

    @Test func `tolerance is zero unless set, and returned as set`() {
        let timer = Timer(interval: .seconds(1)) { _ in }
        #expect(timer.tolerance == .zero)
        timer.tolerance = .milliseconds(300)
        #expect(timer.tolerance == .milliseconds(300))
        #expect(
            Timer(interval: .seconds(1), tolerance: .milliseconds(2)) { _ in }.tolerance == .milliseconds(2))
    }

    @Test func `tolerance is never negative, and at most half of a repeating timer's interval`() {
        let once = Timer(interval: .seconds(1), tolerance: .seconds(-1)) { _ in }
        #expect(once.tolerance == .zero)
        once.tolerance = .seconds(100)
        #expect(once.tolerance == .seconds(100))
        let repeating = Timer(interval: .seconds(1), repeats: true, tolerance: .seconds(9)) { _ in }
        #expect(repeating.tolerance == .milliseconds(500))
        repeating.tolerance = .seconds(-1)
        #expect(repeating.tolerance == .zero)
        repeating.tolerance = .milliseconds(501)
        #expect(repeating.tolerance == .milliseconds(500))
    }
}
