import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct TimerMembershipTests {
    @Test func `an invalid timer is not added`() {
        let timer = Timer(fireDate: .now) { _ in Issue.record("fired") }
        timer.invalidate()
        RunLoop.current.add(timer, forMode: .default)
        #expect(!RunLoop.current.contains(timer, forMode: .default))
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test func `a timer in several modes has one date, which firing in one moves in all`() async throws {
        let modes = try await onItsOwnThread { () -> [RunLoop.Mode?] in
            let loop = RunLoop.current
            var modes: [RunLoop.Mode?] = []
            let timer = Timer.scheduled(every: .seconds(60), forMode: .custom) { _ in
                modes.append(loop.currentMode)
            }
            loop.add(timer, forMode: .modalPanel)
            loop.add(timer, forMode: .common)
            for mode in [RunLoop.Mode.modalPanel, .default] {
                timer.fireDate = .now
                for each in [mode, .custom, .modalPanel, .tracking, .default] { loop.poll(each) }
            }
            timer.invalidate()
            #expect(loop.poll(.custom) == .finished)
            return modes
        }
        #expect(modes == [.modalPanel, .default])
    }

    @Test func `a date set outside the callback moves the timer in all its modes`() {
        let loop = RunLoop.current
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

    @Test func `a timer that is in no loop just keeps the date it is given`() {
        let timer = Timer(fireDate: .now) { _ in }
        let date = Deadline.now + .seconds(5)
        timer.fireDate = date
        #expect(timer.fireDate == date)
        timer.fireDate = .distantPast
        #expect(timer.fireDate == .distantPast)
    }

    @Test func `an overdue timer of another mode neither fires nor wakes the loop`() {
        let loop = RunLoop.current
        var passes = 0
        let overdue = Timer.scheduled(every: .milliseconds(1), forMode: .custom) { _ in
            Issue.record("fired in another mode")
        }
        loop.hold(.default)
        loop.observe(.beforeTimers) { _ in passes += 1 }
        #expect(loop.run(in: .default, until: .after(milliseconds: 10)) == .timedOut)
        #expect(passes <= 2)
        overdue.invalidate()
    }

    @Test func `a timer of a loop that does not run fires once when it does`() async throws {
        let counts = try await onItsOwnThread { () -> [Int] in
            let loop = RunLoop.current
            var count = 0
            let timer = Timer.scheduled(every: .seconds(60)) { _ in count += 1 }
            timer.fireDate = .now - .seconds(600)
            loop.poll()
            let first = count
            loop.poll()
            timer.invalidate()
            return [first, count]
        }
        #expect(counts == [1, 1])
    }

    @Test func `a timer of the far future keeps its mode from being empty, until it is invalidated`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let timer = Timer.scheduled(after: .seconds(3600), forMode: .custom) { _ in }
            #expect(loop.poll(.custom) == .timedOut)
            timer.invalidate()
            #expect(loop.poll(.custom) == .finished)
        }
    }

    @Test func `the limit date is that of the mode's earliest timer, without its tolerance`() {
        let loop = RunLoop.current
        #expect(loop.limitDate(forMode: .default) == nil)
        let late = Timer.scheduled(after: .seconds(900), tolerance: .seconds(500)) { _ in }
        #expect(loop.limitDate(forMode: .default) == late.fireDate)
        let early = Timer.scheduled(after: .seconds(600), forMode: .common, tolerance: .seconds(500)) {
            _ in
        }
        #expect(loop.limitDate(forMode: .default) == early.fireDate)
        Timer.scheduled(after: .seconds(60), forMode: .custom) { _ in }
        #expect(loop.limitDate(forMode: .default) == early.fireDate)
        early.invalidate()
        #expect(loop.limitDate(forMode: .default) == late.fireDate)
    }
}
