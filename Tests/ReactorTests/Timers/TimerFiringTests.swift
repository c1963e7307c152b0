import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct TimerFiringTests {
    private let loop = RunLoop.current

    @Test func `no timer is ever early`() {
        for microseconds in stride(from: 0, through: 5_000, by: 37) {
            Timer.scheduled(after: .microseconds(microseconds)) { timer in #expect(timer.fireDate <= .now) }
        }
        #expect(loop.run(in: .default) == .finished)
    }

    @Test(arguments: [0, 3, 10, 25])
    func `the next date keeps the phase and drops what was missed`(milliseconds: Int) {
        let interval = Duration.milliseconds(10)
        var served: [Deadline] = []
        var ended = Deadline.distantPast
        let timer = Timer.scheduled(every: interval) { timer in
            served.append(timer.fireDate)
            Deadline.after(milliseconds: milliseconds).busyWait()
            ended = .now
            loop.stop()
        }
        let first = timer.fireDate
        #expect(loop.run(in: .default) == .stopped)
        #expect(served == [first])
        #expect((timer.fireDate - first).isMultiple(of: interval))
        #expect(timer.fireDate > ended)
        #expect(timer.fireDate <= .now + interval)
    }

    @Test func `a timer that was missed many times fires once`() {
        var count = 0
        let timer = Timer.scheduled(every: .milliseconds(1)) { _ in count += 1 }
        (timer.fireDate + .milliseconds(5)).busyWait()
        loop.poll()
        #expect(count == 1)
        let late = Timer.scheduled(every: .seconds(60), forMode: .custom) { _ in count += 1 }
        late.fireDate = .now - .seconds(600)
        for _ in 0..<2 { loop.poll(.custom) }
        #expect(count == 2)
    }

    // MARK: By hand

    @Test func `fire calls at once and leaves a repeating timer's dates alone`() {
        var count = 0
        let timer = Timer.scheduled(every: .seconds(60)) { _ in count += 1 }
        let date = timer.fireDate
        for _ in 0..<2 { timer.fire() }
        #expect(count == 2)
        #expect(timer.isValid)
        #expect(timer.fireDate == date)
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
        var (count, depth) = (0, 0)
        let handler = { (timer: Timer) in
            depth += 1
            #expect(depth == 1)
            count += 1
            if count <= 2 { timer.fire() }
            loop.poll()
            depth -= 1
        }
        let due =
            repeats
            ? Timer.scheduled(every: .milliseconds(1), handler: handler)
            : Timer.scheduled(after: .zero, handler: handler)
        due.fireDate.busyWait()
        due.fire()
        #expect(count == 1)
        #expect(due.isValid == repeats)
        due.fireDate = .now
        loop.poll()
        #expect(count == (repeats ? 2 : 1))
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
