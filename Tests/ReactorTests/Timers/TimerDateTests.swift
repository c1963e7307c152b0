import Reactor
import ReactorTesting
import Testing

/// Dates that are set and read, in and out of callbacks.
@Suite(.runLoop) struct TimerDateTests {
    private let loop = RunLoop.current

    @Test func `a date set in the callback is the next, and begins a new phase`() {
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
        #expect(loop.run(in: .default) == .finished)
        #expect(dates[1] == chosen)
        #expect(dates[2] > chosen)
        // On a machine that held this thread up, the phase begins when the date was set.
        #expect(!isInTime || (dates[2] - chosen).isMultiple(of: interval))
    }

    @Test func `a past date set in the callback means the next pass, and the interval counts from now`() {
        var set = Deadline.distantPast
        var count = 0
        let past = Deadline.now - .seconds(50)
        let timer = Timer.scheduled(every: .seconds(100)) { timer in
            count += 1
            guard count == 1 else { return loop.stop() }
            set = .now
            timer.fireDate = past
            #expect(timer.fireDate == past)
        }
        timer.fireDate = .now
        #expect(loop.run(in: .default, until: .minutesAway) == .stopped)
        #expect(count == 2)
        #expect(timer.fireDate >= set + .seconds(100))
        #expect(timer.fireDate <= .now + .seconds(100))
    }

    @Test func `a one-shot is invalid after its callback, even if that set another date`() {
        var count = 0
        let timer = Timer.scheduled(after: .zero) { timer in
            count += 1
            #expect(timer.isValid && loop.contains(timer, forMode: .default))
            timer.fireDate = .now
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(!timer.isValid && !loop.contains(timer, forMode: .default))
        #expect(count == 1)
    }

    @Test func `a timer in no loop keeps the date that it is given, an invalid one its last`() {
        let timer = Timer(fireDate: .now) { _ in }
        for date in [Deadline.now + .seconds(5), .distantPast, .now] {
            timer.fireDate = date
            #expect(timer.fireDate == date)
        }
        let date = timer.fireDate
        loop.add(timer, forMode: .default)
        loop.poll()
        #expect(timer.fireDate == date)
        timer.fireDate = .distantFuture
        #expect(timer.fireDate == date)
    }
}
