import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct TimerFiringTests {
    @Test func `no timer is ever early`() async throws {
        let early = try await onItsOwnThread { () -> [Duration] in
            var early: [Duration] = []
            for microseconds in stride(from: 0, through: 5_000, by: 37) {
                Timer.scheduled(after: .microseconds(microseconds)) { timer in
                    let now = Deadline.now
                    if now < timer.fireDate { early.append(timer.fireDate - now) }
                }
            }
            #expect(RunLoop.current.run(in: .default) == .finished)
            return early
        }
        #expect(early.isEmpty)
    }

    @Test func `a one-shot is valid in its callback, and afterwards neither valid nor in the loop`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            var calls = 0
            let timer = Timer.scheduled(after: .zero, forMode: .common) { timer in
                calls += 1
                #expect(timer.isValid)
                #expect(loop.contains(timer, forMode: .common))
            }
            #expect(loop.run(in: .tracking) == .finished)
            #expect(calls == 1)
            #expect(!timer.isValid)
            for mode in [RunLoop.Mode.common, .default, .tracking] {
                #expect(!loop.contains(timer, forMode: mode))
            }
        }
    }

    @Test(arguments: [0, 3, 10, 25, 99])
    func `the next date keeps the phase and drops what was missed`(milliseconds: Int) {
        let interval = Duration.milliseconds(10)
        var served: Deadline?
        var ended = Deadline.distantPast
        let timer = Timer.scheduled(every: interval) { timer in
            served = timer.fireDate
            (Deadline.now + .milliseconds(milliseconds)).busyWait()
            ended = .now
            RunLoop.current.stop()
        }
        let first = timer.fireDate
        #expect(RunLoop.current.run(in: .default) == .stopped)
        let after = Deadline.now
        #expect(served == first)
        #expect((timer.fireDate - first).isMultiple(of: interval))
        #expect(timer.fireDate > ended)
        #expect(timer.fireDate <= after + interval)
        timer.invalidate()
    }

    @Test func `a hundred firings keep the phase, however long their callbacks take`() {
        let interval = Duration.microseconds(500)
        var dates: [Deadline] = []
        Timer.scheduled(every: interval) { timer in
            dates.append(timer.fireDate)
            if dates.count % 7 == 0 { (Deadline.now + .microseconds(1_300)).busyWait() }
            if dates.count == 100 { timer.invalidate() }
        }
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(dates.count == 100)
        #expect(dates.allSatisfy { ($0 - dates[0]).isMultiple(of: interval) })
        #expect(zip(dates, dates.dropFirst()).allSatisfy { $0 < $1 })
    }

    @Test func `a timer that was missed many times fires once`() async throws {
        let count = try await onItsOwnThread { () -> Int in
            var count = 0
            let timer = Timer.scheduled(every: .milliseconds(1), forMode: .custom) { _ in count += 1 }
            (timer.fireDate + .milliseconds(20)).busyWait()
            RunLoop.current.poll(.custom)
            timer.invalidate()
            return count
        }
        #expect(count == 1)
    }

    @Test func `fire calls at once and leaves a repeating timer's dates alone`() {
        var count = 0
        let timer = Timer.scheduled(every: .seconds(60)) { _ in count += 1 }
        let date = timer.fireDate
        timer.fire()
        timer.fire()
        #expect(count == 2)
        #expect(timer.isValid)
        #expect(timer.fireDate == date)
        timer.invalidate()
        timer.fire()
        #expect(count == 2)
    }

    @Test func `fire uses a one-shot up, in a loop or not`() {
        var count = 0
        let scheduled = Timer.scheduled(after: .zero) { _ in count += 1 }
        scheduled.fire()
        scheduled.fire()
        #expect(!scheduled.isValid)
        #expect(RunLoop.current.poll() == .finished)
        #expect(count == 1)
        let calls = Shared(0)
        let free = Timer(fireDate: .distantFuture) { _ in calls.update { $0 += 1 } }
        free.fire()
        #expect(!free.isValid)
        #expect(calls.value == 1)
    }

    @Test func `a timer that fire calls is not called again by a run of the loop in its handler`()
        async throws
    {
        for repeats in [false, true] {
            try await onItsOwnThread {
                var count = 0
                let timer = self.dueTimer(repeats: repeats) { _ in
                    count += 1
                    RunLoop.current.poll()
                }
                timer.fire()
                #expect(count == 1)
                #expect(timer.isValid == repeats)
                timer.invalidate()
            }
        }
    }

    @Test func `firing a timer in its handler does nothing`() async throws {
        for repeats in [false, true] {
            try await onItsOwnThread {
                var (count, depth) = (0, 0)
                let timer = self.dueTimer(repeats: repeats) { timer in
                    depth += 1
                    #expect(depth == 1)
                    count += 1
                    if count <= 2 { timer.fire() }
                    depth -= 1
                }
                timer.fire()
                RunLoop.current.poll()
                #expect(count == (repeats ? 2 : 1))
                timer.invalidate()
            }
        }
    }

    @Test func `a repeating timer whose loop ran in fire goes on firing`() {
        var count = 0
        let timer = self.dueTimer(repeats: true) { timer in
            count += 1
            if count == 1 { RunLoop.current.poll() } else { timer.invalidate() }
        }
        timer.fire()
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(count == 2)
    }

    @Test func `firing a timer while another thread calls its handler does nothing`() async throws {
        let (begun, fired, calls) = (Answer<Void>(), Answer<Void>(), Shared(0))
        let timer = Timer(fireDate: .distantFuture) { _ in
            calls.update { $0 += 1 }
            begun.give(())
            if calls.value == 1 { fired.wait() }
        }
        async let firing: Void = onItsOwnThread { timer.fire() }
        try await onItsOwnThread {
            begun.wait()
            timer.fire()
            fired.give(())
        }
        try await firing
        #expect(calls.value == 1)
        #expect(!timer.isValid)
    }

    /// A timer of this thread's loop that is due.
    private func dueTimer(repeats: Bool, _ handler: @escaping (Timer) -> Void) -> Timer {
        let timer =
            repeats
            ? Timer.scheduled(every: .milliseconds(1), handler: handler)
            : Timer.scheduled(after: .zero, handler: handler)
        timer.fireDate.busyWait()
        return timer
    }
}
