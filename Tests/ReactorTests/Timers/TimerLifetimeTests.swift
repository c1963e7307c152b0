import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct TimerLifetimeTests {
    @Test func `the loop keeps a timer, and frees it with its closure once it has fired`() {
        let freed = Shared(false)
        weak var weakTimer: Timer?
        schedule(AtEnd { freed.value = true }, once: true) { timer in
            weakTimer = timer
            #expect(!freed.value)
        }
        RunLoop.current.run(in: .default)
        #expect(freed.value)
        #expect(weakTimer == nil)
    }

    @Test func `invalidating frees the closure at once and the loop's hold on the timer`() {
        let freed = Shared(false)
        var timer: Timer? = makeTimer(AtEnd { freed.value = true })
        weak let weakTimer = timer
        for mode in [RunLoop.Mode.common, .custom] { RunLoop.current.add(timer!, forMode: mode) }
        #expect(!freed.value)
        timer?.invalidate()
        #expect(freed.value)
        timer = nil
        #expect(weakTimer == nil)
    }

    @Test func `a timer that is in no loop is freed with its last owner`() {
        var timer: Timer? = Timer(interval: .seconds(1), repeats: true) { _ in }
        weak let weakTimer = timer
        timer = nil
        #expect(weakTimer == nil)
    }

    @Test func `removing a timer from its last mode ends the loop's hold on it`() {
        var timer: Timer? = Timer.scheduled(after: .seconds(9), forMode: .custom) { _ in }
        weak let weakTimer = timer
        RunLoop.current.remove(timer!, forMode: .custom)
        timer = nil
        #expect(weakTimer == nil)
    }

    @Test func `invalidating a timer within its callback releases the closure when the callback returns`()
        async throws
    {
        try await onItsOwnThread {
            let freed = Shared(false)
            var freedInside: [Bool] = []
            schedule(AtEnd { freed.value = true }, once: false) { timer in
                timer.invalidate()
                timer.invalidate()
                freedInside.append(freed.value)
            }
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(freedInside == [false])
            #expect(freed.value)
        }
    }

    @Test func `a thread that ends frees its loop's timers and their closures`() async throws {
        let freed = Countdown(3)
        try await onItsOwnThread {
            for (delay, mode) in [(0, RunLoop.Mode.default), (0, .common), (900, .custom)] {
                let canary = AtEnd { freed.count() }
                Timer.scheduled(after: .seconds(delay), forMode: mode) { _ in _ = canary }
            }
        }
        freed.wait()
    }

    @Test func `a closure in a reference cycle with its timer is freed by invalidating the timer`()
        async throws
    {
        final class Owner {
            var timer: Timer?
            func start() { timer = Timer.scheduled(every: .seconds(1)) { _ in self.timer?.fireDate = .now } }
        }
        try await onItsOwnThread {
            var owner: Owner? = Owner()
            owner?.start()
            weak let weakOwner = owner
            owner?.timer?.invalidate()
            owner = nil
            #expect(weakOwner == nil)
        }
    }

    @Test func `a hundred thousand timers come and go and leave nothing`() async throws {
        try await onItsOwnThread {
            let live = Shared(0)
            for _ in 0..<100 {
                let timers = (0..<1_000).map { _ in
                    live.update { $0 += 1 }
                    let canary = AtEnd { live.update { $0 -= 1 } }
                    return Timer.scheduled(after: .seconds(60), forMode: .common) { _ in _ = canary }
                }
                for timer in timers { timer.invalidate() }
            }
            #expect(live.value == 0)
            #expect(RunLoop.current.poll() == .finished)
        }
    }
}

private func makeTimer(_ canary: AtEnd) -> Timer {
    Timer(interval: .seconds(5), repeats: true) { _ in _ = canary }
}

/// A timer whose closure is all that holds `canary`.
private func schedule(_ canary: AtEnd, once: Bool, _ body: @escaping (Timer) -> Void) {
    let handler = { (timer: Timer) in withExtendedLifetime(canary) { body(timer) } }
    if once {
        Timer.scheduled(after: .zero, handler: handler)
    } else {
        Timer.scheduled(every: .microseconds(100), handler: handler)
    }
}
