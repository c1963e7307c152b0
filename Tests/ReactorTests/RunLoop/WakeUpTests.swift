import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct WakeUpTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    // MARK: On the loop's thread

    @Test(arguments: [RunLoop.Activities.beforeTimers, .beforeSources, .beforeWaiting])
    func `a wake-up before a wait skips the wait, however often it is requested`(activity: RunLoop.Activities)
    {
        loop.hold(.default)
        var passes = 0
        loop.observe(.beforeTimers, order: -1) { _ in
            passes += 1
            if passes == 2 { loop.stop() }
        }
        loop.observe(activity) { _ in
            if passes == 1 { for _ in 0..<3 { loop.wakeUp() } }
        }
        #expect(loop.run(in: .default) == .stopped)
        #expect(passes == 2)
    }

    @Test func `waking a loop that does not run is not remembered`() {
        loop.hold(.default)
        loop.observe(.beforeTimers) { trace("\($0)") }
        loop.wakeUp()
        #expect(loop.run(in: .default, until: .after(milliseconds: 2)) == .timedOut)
        #expect(trace.all == ["beforeTimers"])
    }

    @Test func `a wake-up after a wait is not remembered, because the loop makes another pass anyway`() {
        loop.hold(.default)
        Timer.scheduled(after: .milliseconds(1)) { _ in
            loop.wakeUp()
            Timer.scheduled(after: .milliseconds(1)) { _ in loop.stop() }
        }
        loop.observe(.beforeWaiting) { trace("\($0)") }
        loop.run(in: .default)
        #expect(trace.all == ["beforeWaiting", "beforeWaiting"])
    }

    @Test func `a signal alone ends no wait, and is served by the next activation`() {
        let source = RunLoop.Source { trace("source") }
        loop.add(source, forMode: .default)
        loop.observe(.beforeWaiting) { _ in
            source.signal()
            Timer.scheduled(after: .milliseconds(1)) { _ in loop.stop() }
        }
        #expect(loop.run(in: .default) == .stopped)
        #expect(trace.all.isEmpty)
        #expect(loop.run(mode: .default, before: .distantFuture))
        #expect(trace.all == ["source"])
    }

    @Test(arguments: [true, false])
    func `what is requested for the outer mode during a nested activation is served without a sleep`(
        isSignal: Bool
    ) {
        for mode in [RunLoop.Mode.outer, .inner] { loop.hold(mode) }
        let source = RunLoop.Source { loop.stop() }
        loop.add(source, forMode: .outer)
        loop.observeOnce(isSignal ? .beforeWaiting : .beforeTimers, in: .outer) {
            if isSignal { source.signal() } else { loop.perform(inModes: [.outer]) { loop.stop() } }
            loop.wakeUp()
            for _ in 0..<2 { loop.poll(.inner) }
        }
        #expect(loop.run(in: .outer) == .stopped)
    }

    // MARK: From another thread

    @Test(arguments: ["wakeUp()", "a signal and wakeUp()", "a block", "a source", "a timer", "a message"])
    func `a request of another thread wakes a loop that sleeps`(request: String) throws {
        let source = RunLoop.Source { loop.stop() }
        loop.hold(.default)
        if request.hasPrefix("a signal") { loop.add(source, forMode: .default) }
        if request == "wakeUp()" { loop.observe(.afterWaiting) { _ in loop.stop() } }
        let mailbox = Mailbox<Void> { _, _ in loop.stop() }
        let waker = try loop.whenAsleep {
            switch request {
            case "wakeUp()": loop.wakeUp()
            case "a block": loop.perform { loop.stop() }
            case "a source":
                source.signal()
                loop.add(source, forMode: .default)
            case "a message": mailbox.post(())
            case "a timer": loop.add(Timer(interval: .zero) { _ in loop.stop() }, forMode: .default)
            default:
                source.signal()
                loop.wakeUp()
            }
        }
        #expect(loop.run(in: .default) == .stopped)
        waker.join()
    }

    @Test(arguments: [true, false])
    func `an event that has woken the loop in one mode does not wake it in another`(byAlarm: Bool) throws {
        for mode in [RunLoop.Mode.inner, .outer] {
            loop.hold(mode)
            loop.run(in: mode, until: .after(milliseconds: 1))
        }
        for _ in 0..<2 {
            let waker = byAlarm ? nil : try loop.whenAsleep { loop.stop() }
            if byAlarm { Timer.scheduled(after: .milliseconds(1), forMode: .inner) { _ in loop.stop() } }
            #expect(loop.run(in: .inner) == .stopped)
            waker?.join()
        }
        loop.observe(.beforeWaiting, in: .outer) { _ in trace("sleeps") }
        for _ in 0..<2 {
            // Not before the kernel has put it to sleep: one that was woken would make another pass.
            let stopper = try loop.whenAsleep { loop.stop() }
            #expect(loop.run(in: .outer) == .stopped)
            stopper.join()
        }
        #expect(trace.all == ["sleeps", "sleeps"])
    }

    @Test func `no wake-up is lost when two threads take turns`() throws {
        let rounds = Depth.of(full: 100_000, quick: 2000)
        let other = try RunLoopThread(name: "other side")
        loop.hold(.default)
        let count = Shared(0)
        @Sendable func turn() {
            count.value += 1
            guard count.value < rounds else { return loop.stop() }
            other.runLoop.perform { loop.perform(turn) }
        }
        turn()
        #expect(loop.run(in: .default) == .stopped)
        #expect(count.value == rounds)
        other.stop()
    }
}
