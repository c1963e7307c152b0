import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Timers that other threads than the loop's change. Each test ends by itself only if the loop wakes.
@Suite(.runLoop) struct TimerThreadTests {
    private let loop = RunLoop.current

    @Test(arguments: ["added", "moved", "invalidated"])
    func `a timer that another thread adds, moves or invalidates wakes the loop`(how: String) throws {
        let held = RunLoop.Source {}
        let timer = Timer(fireDate: .distantFuture) { timer in
            #expect(loop.isCurrent && Deadline.now >= timer.fireDate)
            held.invalidate()
        }
        if how == "added" { loop.add(held, forMode: .default) } else { loop.add(timer, forMode: .default) }
        let other = try loop.whenAsleep {
            if how == "invalidated" { timer.invalidate() } else { timer.fireDate = .now + .milliseconds(1) }
            if how == "added" { loop.add(timer, forMode: .default) }
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(!timer.isValid)
        other.join()
    }

    @Test func `moving a timer from another thread during its callback counts as moving it inside`() {
        let later = Deadline.now + .seconds(600)
        let calls = Shared(0)
        let timer = Timer(fireDate: .now, interval: .milliseconds(1), repeats: true) { timer in
            calls.value += 1
            onThreads(1) { _ in timer.fireDate = later }
        }
        loop.add(timer, forMode: .default)
        loop.poll()
        #expect(timer.fireDate == later)
        #expect(calls.value == 1)
    }

    @Test func `a timer fires wherever threads put it last, however often they change their minds`() {
        let trace = Trace()
        let timers = (0..<8).map { index in Timer(fireDate: .now) { _ in trace("\(index)") } }
        let modes: [RunLoop.Mode] = [.default, .custom, .common, .modalPanel]
        onThreads(4) { thread in
            for round in 0..<400 {
                let timer = timers[(thread + round) % timers.count]
                let mode = modes[(thread + round / 8) % modes.count]
                if round % 3 == 0 {
                    loop.remove(timer, forMode: mode)
                } else {
                    loop.add(timer, forMode: mode)
                }
            }
        }
        for timer in timers { loop.add(timer, forMode: .custom) }
        loop.poll(.custom)
        for mode in modes where mode != .common { #expect(loop.poll(mode) == .finished) }
        #expect(trace.all.sorted() == (0..<8).map { "\($0)" })
    }

    @Test func `threads may move and invalidate timers whose loop is just ending`() {
        for _ in 0..<50 {
            let timers = Shared<[Timer]>([])
            let (made, destroyed) = (Countdown(1), Countdown(2))
            onThreads(3) { thread in
                if thread == 0 {
                    let (first, second) = (AtEnd { destroyed.count() }, AtEnd { destroyed.count() })
                    let own = Timer.scheduled(after: .seconds(3600)) { _ in _ = first }
                    let free = Timer(fireDate: .distantFuture) { _ in _ = second }
                    RunLoop.current.add(free, forMode: .default)
                    timers.value = [own, free]
                    made.count()
                } else {
                    made.wait()
                    for timer in timers.value {
                        for _ in 0..<20 { timer.fireDate = .distantFuture }
                        if thread == 1 { timer.invalidate() }
                    }
                }
            }
            destroyed.wait()
        }
    }
}
