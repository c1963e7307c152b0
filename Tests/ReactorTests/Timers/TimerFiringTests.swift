import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// How timers are made, when they fire, and what that does to their dates.
@Suite(.runLoop) struct TimerFiringTests {
    private let loop = RunLoop.current

    // MARK: Made

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

    @Test(arguments: [Duration.zero, .seconds(-1), .nanoseconds(1), .microseconds(99), .seconds(70)])
    func `a timer fires first one interval from now, of at least a tenth of a millisecond if it repeats`(
        interval: Duration
    ) {
        withVirtualTime { _ in
            #expect(
                Timer(interval: interval, repeats: false) { _ in }.fireDate == .now + max(interval, .zero))
            let (start, kept) = (Deadline.now, max(interval, .microseconds(100)))
            var dates: [Deadline] = []
            let timer = Timer.scheduled(every: interval) { timer in
                dates.append(.now)
                if dates.count == 5 { timer.invalidate() }
            }
            #expect(timer.interval == kept)
            #expect(loop.run(in: .default) == .finished)
            #expect(dates == (1...5).map { start + kept * $0 })
        }
    }

    @Test func `an interval beyond the clock's end is kept within it, and its timer is never due`() {
        let timer = Timer(interval: .seconds(Int64.max), repeats: true) { _ in Issue.record("fired") }
        #expect(timer.interval == .nanoseconds(Int64.max))
        loop.add(timer, forMode: .default)
        withVirtualTime { time in time.advance(by: .seconds(1_000_000_000)) }
        #expect(loop.poll() == .timedOut)
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

    // MARK: Dates

    @Test func `a past date is returned as it was set, and the interval counts from when it was set`() {
        withVirtualTime { time in
            let (start, past, interval) = (Deadline.now, Deadline.now - .seconds(930), Duration.seconds(100))
            let calls = Shared(0)
            let timer = Timer(fireDate: past, interval: interval, repeats: true) { timer in
                calls.value += 1
                #expect(timer.fireDate == past)
                guard calls.value == 2 else { return }
                time.skip(.seconds(1))
                timer.fireDate = past
                #expect(timer.fireDate == past)
            }
            #expect(timer.fireDate == past)
            loop.add(timer, forMode: .default)
            loop.poll()
            #expect(timer.fireDate == start + interval)
            timer.fireDate = past
            for _ in 0..<2 { loop.poll() }
            #expect(timer.fireDate == start + .seconds(1) + interval)
            #expect(calls.value == 3)
        }
    }

    @Test func `a date set in the callback is the next, and begins a new phase`() {
        withVirtualTime { _ in
            let (start, interval) = (Deadline.now, Duration.milliseconds(5))
            var dates: [Deadline] = []
            Timer.scheduled(every: interval) { timer in
                dates.append(.now)
                if dates.count == 1 { timer.fireDate = timer.fireDate + .nanoseconds(7_123_457) }
                if dates.count == 3 { timer.invalidate() }
            }
            #expect(loop.run(in: .default) == .finished)
            let chosen = start + interval + .nanoseconds(7_123_457)
            #expect(dates == [start + interval, chosen, chosen + interval])
        }
    }

    @Test func `a repeating timer that was due in a run nested in fire() fires after that`() {
        withVirtualTime { time in
            var count = 0
            let timer = Timer.scheduled(every: .seconds(1)) { [loop] _ in
                count += 1
                guard count == 1 else { return }
                time.skip(.seconds(2))
                loop.poll()
                #expect(count == 1)
            }
            timer.fire()
            time.advance(by: .seconds(2))
            #expect(count >= 3)
            timer.invalidate()
        }
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

    @Test(arguments: [0, 3, 10, 25, 60_000])
    func `a timer fires once for all that it has missed, and the next date keeps the phase`(
        milliseconds: Int
    ) {
        withVirtualTime { time in
            let interval = Duration.milliseconds(10)
            var served: [Deadline] = []
            let timer = Timer.scheduled(every: interval) { timer in
                served.append(timer.fireDate)
                time.skip(.milliseconds(milliseconds))
            }
            let first = timer.fireDate
            time.skip(interval)
            loop.poll()
            #expect(served == [first])
            #expect(timer.fireDate == first + interval * (milliseconds / 10 + 1))
        }
    }

    /// In the kernel's time.
    @Test func `no timer is ever early`() {
        for microseconds in stride(from: 0, through: 5_000, by: 37) {
            Timer.scheduled(after: .microseconds(microseconds)) { timer in #expect(timer.fireDate <= .now) }
        }
        #expect(loop.run(in: .default) == .finished)
    }

    // MARK: By hand

    @Test func `fire calls at once, and leaves a repeating timer's date alone`() {
        var count = 0
        let timer = Timer.scheduled(every: .seconds(60)) { _ in count += 1 }
        let date = timer.fireDate
        for _ in 0..<2 { timer.fire() }
        #expect(count == 2 && timer.isValid && timer.fireDate == date)
        timer.invalidate()
        timer.fire()
        #expect(count == 2)
    }

    @Test func `fire uses a one-shot up, in a loop or not`() {
        let calls = Shared(0)
        let scheduled = Timer.scheduled(after: .zero) { _ in calls.value += 1 }
        let free = Timer(fireDate: .distantFuture) { _ in calls.value += 1 }
        for timer in [scheduled, free] {
            for _ in 0..<2 { timer.fire() }
            #expect(!timer.isValid)
        }
        #expect(loop.poll() == .finished)
        #expect(calls.value == 2)
    }

    @Test(arguments: [false, true])
    func `neither a run of the loop nor fire calls a timer in its handler`(repeats: Bool) {
        let (count, depth) = (Shared(0), Shared(0))
        let timer = Timer(fireDate: .distantPast, interval: .milliseconds(1), repeats: repeats) { timer in
            depth.value += 1
            #expect(depth.value == 1)
            count.value += 1
            if count.value <= 2 { timer.fire() }
            loop.poll()
            depth.value -= 1
        }
        loop.add(timer, forMode: .default)
        timer.fire()
        #expect(count.value == 1)
        #expect(timer.isValid == repeats)
        timer.fireDate = .now
        loop.poll()
        #expect(count.value == (repeats ? 2 : 1))
    }

    @Test func `firing a timer while another thread calls its handler does nothing`() throws {
        let (begun, fired, calls) = (Answer<Void>(), Answer<Void>(), Shared(0))
        let timer = Timer(fireDate: .distantFuture) { _ in
            calls.value += 1
            begun.give(())
            fired.wait()
        }
        let firing = try JoinableThread { timer.fire() }
        begun.wait()
        timer.fire()
        fired.give(())
        firing.join()
        #expect(calls.value == 1)
        #expect(!timer.isValid)
    }
}
