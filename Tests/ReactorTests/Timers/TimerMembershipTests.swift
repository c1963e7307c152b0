import Reactor
import ReactorTesting
import Testing

/// Timers in modes, and their lifetimes. `CommonModeTests` and `LifetimeTests` have what timers share with other items.
@Suite(.runLoop) struct TimerMembershipTests {
    private let loop = RunLoop.current

    @Test func `a timer in several modes has one date, which firing in one moves in all`() {
        var modes: [RunLoop.Mode?] = []
        let timer = Timer.scheduled(every: .seconds(60), forMode: .custom) { _ in
            modes.append(loop.currentMode)
        }
        for mode in [RunLoop.Mode.modalPanel, .common] { loop.add(timer, forMode: mode) }
        for mode in [RunLoop.Mode.modalPanel, .default] {
            timer.fireDate = .now
            for each in [mode, .custom, .modalPanel, .tracking, .default] { loop.poll(each) }
        }
        timer.invalidate()
        #expect(loop.poll(.custom) == .finished)
        #expect(modes == [.modalPanel, .default])
    }

    @Test func `a date set outside the callback moves the timer in all its modes`() {
        var count = 0
        let timer = Timer.scheduled(after: .zero, forMode: .custom) { _ in count += 1 }
        loop.add(timer, forMode: .common)
        timer.fireDate = .distantFuture
        for mode in [RunLoop.Mode.custom, .default, .tracking] { loop.poll(mode) }
        #expect(count == 0)
        #expect(loop.limitDate(forMode: .custom) == .distantFuture)
        timer.fireDate = .now
        loop.poll(.tracking)
        #expect(count == 1)
    }

    @Test func `an overdue timer of another mode neither fires nor wakes the loop`() {
        var passes = 0
        Timer.scheduled(every: .milliseconds(1), forMode: .custom) { _ in
            Issue.record("fired in another mode")
        }
        loop.hold(.default)
        loop.observe(.beforeTimers) { _ in passes += 1 }
        #expect(loop.run(in: .default, until: .after(milliseconds: 10)) == .timedOut)
        #expect(passes <= 2)
    }

    @Test func `a closure in a reference cycle with its timer is freed by invalidating the timer`() {
        final class Owner {
            var timer: Timer?
            func start() { timer = Timer.scheduled(every: .seconds(1)) { _ in self.timer?.fireDate = .now } }
        }
        var owner: Owner? = Owner()
        owner?.start()
        weak let weakOwner = owner
        owner?.timer?.invalidate()
        owner = nil
        #expect(weakOwner == nil)
    }
}
