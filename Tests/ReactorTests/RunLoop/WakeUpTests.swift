import Reactor
import ReactorTesting
import Testing

/// Runs a loop on a thread of its own; `whenWaiting` is called on yet another once the loop is about to sleep
/// for the first time.
private func tracedWhileWaiting(
    _ prepare: @escaping @Sendable (RunLoop, Trace) throws -> RunLoop.RunResult,
    whenWaiting: @escaping @Sendable (RunLoop) -> Void
) async throws -> [String] {
    let waiting = Answer<RunLoop>()
    async let trace = traced { loop, trace in
        let observer = RunLoop.Observer(for: .beforeWaiting, repeats: false) { _, _ in waiting.give(loop) }
        loop.add(observer, forMode: .default)
        loop.hold(.default)
        trace("\(try prepare(loop, trace))")
    }
    try await onItsOwnThread { whenWaiting(waiting.wait()) }
    return try await trace
}

@Suite(.runLoop) struct WakeUpTests {
    @Test func `waking makes one more pass and ends nothing`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            var passes = 0
            loop.observe { activity in
                trace("\(activity)")
                guard activity == .beforeWaiting else { return }
                passes += 1
                if passes == 1 { loop.wakeUp() } else { loop.stop() }
            }
            loop.run(in: .default)
        }
        let pass = ["beforeTimers", "beforeSources", "beforeWaiting", "afterWaiting"]
        #expect(trace == ["entry"] + pass + pass + ["exit"])
    }

    @Test func `wakeUp() from another thread makes a sleeping loop run another pass`() async throws {
        let trace = try await tracedWhileWaiting { loop, trace in
            loop.observe(.afterWaiting) { _ in
                trace("woken")
                loop.stop()
            }
            return loop.run(in: .default)
        } whenWaiting: {
            $0.wakeUp()
        }
        #expect(trace == ["woken", "stopped"])
    }

    @Test(arguments: [RunLoop.Activities.beforeTimers, .beforeSources, .beforeWaiting])
    func `a wake-up before a wait skips the wait, however often it is requested`(activity: RunLoop.Activities)
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            var passes = 0
            loop.observe(.beforeTimers, order: -1) { _ in
                passes += 1
                trace("\(passes)")
                if passes == 2 { loop.stop() }
            }
            loop.observe(activity) { _ in
                guard passes == 1 else { return }
                for _ in 0..<3 { loop.wakeUp() }
            }
            loop.run(in: .default)
        }
        #expect(trace == ["1", "2"])
    }

    @Test func `waking a loop that does not run is not remembered`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.observe(.beforeTimers) { trace("\($0)") }
            loop.wakeUp()
            trace("\(loop.run(in: .default, until: .after(milliseconds: 2)))")
        }
        #expect(trace == ["beforeTimers", "timedOut"])
    }

    @Test func `a wake-up after a wait is not remembered, because the loop makes another pass anyway`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            Timer.scheduled(after: .milliseconds(1)) { _ in
                loop.wakeUp()
                Timer.scheduled(after: .milliseconds(1)) { _ in loop.stop() }
            }
            loop.observe(.beforeWaiting) { trace("\($0)") }
            loop.run(in: .default)
        }
        #expect(trace == ["beforeWaiting", "beforeWaiting"])
    }

    @Test func `a signal with a wake-up is served promptly`() async throws {
        let source = Answer<RunLoop.Source>()
        let trace = try await tracedWhileWaiting { loop, trace in
            let own = RunLoop.Source { trace("source") }
            loop.add(own, forMode: .default)
            source.give(own)
            return loop.run(in: .default, returnAfterSourceHandled: true)
        } whenWaiting: { loop in
            source.wait().signal()
            loop.wakeUp()
        }
        #expect(trace == ["source", "handledSource"])
    }

    @Test func `a signal alone ends no wait, and is served by the next activation`() async throws {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { trace("source") }
            loop.add(source, forMode: .default)
            loop.observe(.beforeWaiting) { _ in
                source.signal()
                Timer.scheduled(after: .milliseconds(1)) { _ in loop.stop() }
            }
            trace("\(loop.run(in: .default))")
            trace("\(loop.run(mode: .default, before: .distantFuture))")
        }
        #expect(trace == ["stopped", "source", "true"])
    }

    @Test func `a block from another thread wakes the loop and does not end the activation`() async throws {
        let trace = try await tracedWhileWaiting { loop, _ in
            loop.run(in: .default, until: .minutesAway, returnAfterSourceHandled: true)
        } whenWaiting: { loop in
            let hasRun = Answer<Bool>()
            loop.perform { hasRun.give(true) }
            _ = hasRun.wait()
            loop.stop()
        }
        #expect(trace == ["stopped"])
    }

    @Test(arguments: [Kind.source, .timer])
    func `an item that another thread adds takes effect in a sleeping loop`(kind: Kind) async throws {
        let served = Trace()
        let trace = try await tracedWhileWaiting { loop, _ in
            loop.run(in: .default, until: .minutesAway)
        } whenWaiting: { loop in
            let isServed = Answer<Bool>()
            let source = RunLoop.Source { isServed.give(true) }
            source.signal()
            let timer = Timer(interval: .zero) { _ in isServed.give(true) }
            if kind == .source { loop.add(source, forMode: .default) }
            if kind == .timer { loop.add(timer, forMode: .default) }
            served("\(isServed.wait())")
            loop.stop()
        }
        #expect(trace == ["stopped"])
        #expect(served.all == ["true"])
    }

    @Test func `a loop is waiting between the two observers of the wait and not elsewhere`() async throws {
        let trace = try await tracedWhileWaiting { loop, trace in
            loop.observe { _ in if loop.isWaiting { trace("waiting while awake") } }
            return loop.run(in: .default)
        } whenWaiting: { loop in
            while !loop.isWaiting {}
            loop.stop()
        }
        #expect(trace == ["stopped"])
    }

    @Test(arguments: [true, false])
    func `an event that has woken the loop in one mode does not wake it in another`(byAlarm: Bool)
        async throws
    {
        let trace = try await traced { loop, trace in
            for mode in [RunLoop.Mode.inner, .outer] {
                loop.hold(mode)
                loop.run(in: mode, until: .after(milliseconds: 1))
            }
            for _ in 0..<2 {
                let waker = try JoinableThread(name: "waker") {
                    if byAlarm { return }
                    loop.untilAsleep()
                    loop.stop()
                }
                if byAlarm { Timer.scheduled(after: .milliseconds(1), forMode: .inner) { _ in loop.stop() } }
                #expect(loop.run(in: .inner) == .stopped)
                waker.join()
            }
            loop.observe(.beforeWaiting, in: .outer) { _ in trace("sleeps") }
            let thread = KernelThread.current
            for _ in 0..<2 {
                // Not before the kernel has put it to sleep: one that was woken would go round once more.
                let stopper = try JoinableThread(name: "stopper") {
                    waitUntil { loop.isWaiting && thread.isAsleep }
                    loop.stop()
                }
                #expect(loop.run(in: .outer) == .stopped)
                stopper.join()
            }
        }
        #expect(trace == ["sleeps", "sleeps"])
    }
}
