import Reactor
import ReactorTesting
import Testing

/// Dates that are set and told, in and out of callbacks.
@Suite(.runLoop) struct TimerDateTests {
    @Test func `a date set in the callback is the next, and begins a new phase`() async throws {
        try await onItsOwnThread {
            let interval = Duration.milliseconds(5)
            var dates: [Deadline] = []
            var chosen = Deadline.distantPast
            var isInTime = false
            Timer.scheduled(every: interval) { timer in
                dates.append(timer.fireDate)
                guard dates.count == 1 else { return dates.count == 3 ? timer.invalidate() : () }
                chosen = timer.fireDate + .nanoseconds(7_123_457)
                timer.fireDate = chosen
                isInTime = Deadline.now < chosen
            }
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(dates[1] == chosen)
            #expect(dates[2] > chosen)
            // On a machine that held this thread up, the phase begins when the date was set.
            #expect(!isInTime || (dates[2] - chosen).isMultiple(of: interval))
        }
    }

    @Test func `a past date set in the callback means the next pass, and the interval counts from now`()
        async throws
    {
        try await onItsOwnThread {
            var set = Deadline.distantPast
            var count = 0
            let past = Deadline.now - .seconds(50)
            let moved = Timer.scheduled(every: .seconds(100)) { timer in
                count += 1
                if count == 1 {
                    set = .now
                    timer.fireDate = past
                    #expect(timer.fireDate == past)
                } else {
                    RunLoop.current.stop()
                }
            }
            moved.fireDate = .now
            #expect(RunLoop.current.run(in: .default, until: .minutesAway) == .stopped)
            #expect(count == 2)
            #expect(moved.fireDate >= set + .seconds(100))
            #expect(moved.fireDate <= .now + .seconds(100))
            moved.invalidate()
        }
    }

    @Test func `a one-shot is invalid after its callback, even if that set another date`() async throws {
        let count = try await onItsOwnThread { () -> Int in
            var count = 0
            let timer = Timer.scheduled(after: .zero) { timer in
                count += 1
                timer.fireDate = .now
            }
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(!timer.isValid)
            return count
        }
        #expect(count == 1)
    }

    @Test func `fireDate returns the date being served until the callback returns`() {
        let timer = Timer.scheduled(every: .seconds(30)) { timer in
            let date = timer.fireDate
            #expect(date <= .now)
            RunLoop.current.hold(.custom)
            RunLoop.current.poll(.custom)
            #expect(timer.fireDate == date)
        }
        timer.fireDate = .now
        RunLoop.current.poll()
        #expect(timer.fireDate > .now)
        timer.invalidate()
    }

    @Test func `an invalid timer keeps its last date`() {
        let timer = Timer.scheduled(after: .milliseconds(1)) { _ in }
        let date = timer.fireDate
        RunLoop.current.run(in: .default)
        #expect(timer.fireDate == date)
        timer.fireDate = .distantFuture
        #expect(timer.fireDate == date)
        let other = Timer(fireDate: date) { _ in }
        other.invalidate()
        #expect(other.fireDate == date)
    }
}
