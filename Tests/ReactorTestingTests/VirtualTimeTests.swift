import Dispatch
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct VirtualTimeTests {
    @Test func `a day of timers passes at once, in the order of their dates`() {
        withVirtualTime { time in
            let start = Deadline.now
            var dates: [Duration] = []
            #expect(!(0..<100).contains { _ in start != .now })
            for index in (1...1000).reversed() {
                Timer.scheduled(after: .seconds(86 * index)) { _ in dates.append(start.duration(to: .now)) }
            }
            time.runUntilIdle()
            #expect(dates == (1...1000).map { .seconds(86 * $0) })
            #expect(time.now == start + .seconds(86_000) && time.now == .now)
        }
    }

    @Test func `advancing fires what is due at the end, and nothing later`() {
        withVirtualTime { time in
            var fired: [Int] = []
            for seconds in 1...3 { Timer.scheduled(after: .seconds(seconds)) { _ in fired.append(seconds) } }
            time.advance(by: .seconds(2))
            #expect(fired == [1, 2])
            time.advance(by: .nanoseconds(999_999_999))
            #expect(fired == [1, 2])
            time.advance(by: .nanoseconds(1))
            #expect(fired == [1, 2, 3])
        }
    }

    @Test func `a repeating timer fires as often as it would`() {
        withVirtualTime { time in
            var count = 0
            let timer = Timer.scheduled(every: .milliseconds(250)) { _ in count += 1 }
            time.advance(by: .seconds(60))
            #expect(count == 240)
            timer.invalidate()
        }
    }

    @Test func `timers share wake-ups within their tolerance, as in real time`() {
        withVirtualTime { time in
            var dates: [Duration] = []
            let start = time.now
            Timer.scheduled(after: .seconds(1), tolerance: .seconds(1)) { _ in
                dates.append(start.duration(to: .now))
            }
            Timer.scheduled(after: .milliseconds(1500)) { _ in dates.append(start.duration(to: .now)) }
            time.runUntilIdle()
            #expect(dates == [.milliseconds(1500), .milliseconds(1500)])
        }
    }

    @Test func `a run until a date takes no real time`() {
        withVirtualTime { time in
            let start = time.now
            Timer.scheduled(after: .seconds(7200)) { _ in }
            #expect(RunLoop.current.run(in: .default, until: start + .seconds(3600)) == .timedOut)
            #expect(time.now == start + .seconds(3600))
        }
    }

    @Test func `the time of other threads is the kernel's`() throws {
        try withVirtualTime { time in
            time.advance(by: .seconds(100))
            try onAThread { #expect(Deadline.now < time.now - .seconds(50)) }
        }
    }

    @Test func `threads with loops that the test starts have its time`() throws {
        try withVirtualTime { time in
            let thread = try RunLoopThread(name: "worker")
            let (start, loop) = (time.now, RunLoop.current)
            let date = Shared<Deadline?>(nil)
            Timer.scheduled(after: .seconds(9)) { _ in }
            thread.runLoop.add(
                Timer(fireDate: start + .seconds(5)) { _ in
                    date.value = .now
                    loop.perform { loop.stop() }
                }, forMode: .default)
            #expect(loop.run(in: .default) == .stopped)
            #expect(date.value == start + .seconds(5))
            #expect(time.now == start + .seconds(5))
            thread.stop()
        }
    }

    // MARK: What is real

    @Test(arguments: ["a peer", "a child process", "another thread"])
    func `the clock does not jump while the loop waits for what works elsewhere`(worker: String) throws {
        let (pipe, lines) = (try TestPipe(), try TemporaryFile(String(repeating: "\n", count: 200_000)))
        try withVirtualTime { time in
            let (start, loop) = (time.now, RunLoop.current)
            Timer.scheduled(after: .seconds(60)) { _ in loop.stop() }
            switch worker {
            case "a peer":
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in loop.stop() }
                try loop.add(source, forMode: .default)
                _ = try JoinableThread(name: "peer") { pipe.put() }
            case "a child process":
                let child = try ChildProcess.spawn(.init("sleep", ["0.1"])).process
                try loop.add(ProcessSource(child) { _, _ in loop.stop() }, forMode: .default)
            default:
                let reader = LineReader(path: lines.path, into: 0, on: .global()) { count, _, _ in count += 1
                }
                reader.start { report in
                    #expect(report.output.value == 200_000)
                    loop.stop()
                }
            }
            #expect(loop.run(in: .default) == .stopped)
            #expect(start.duration(to: .now) < .seconds(60))
        }
    }

    @Test func `a held clock does not jump`() throws {
        try withVirtualTime { time in
            let (start, loop, hold) = (time.now, RunLoop.current, time.hold())
            Timer.scheduled(after: .seconds(3600)) { _ in loop.stop() }
            let thread = try JoinableThread(name: "holder") {
                waitUntil { loop.isWaiting }
                hold.end()
            }
            #expect(loop.run(in: .default) == .stopped)
            #expect(start.duration(to: .now) >= .seconds(3600))
            thread.join()
        }
    }

    @Test func `a blocking call lets the clock run`() throws {
        try withVirtualTime { time in
            let child = try ChildProcess.spawn(.init("sleep", ["100"])).process
            #expect(child.wait(until: .now + .milliseconds(10)) == nil)
            try child.send(9)
            #expect(child.wait() != nil)
        }
    }

    // MARK: Other clocks

    @Test func `a timer on the wall clock fires when that comes to its date`() throws {
        try withVirtualTime { time in
            let start = time.wallClock
            var events: [(ClockTimer.Event, Duration)] = []
            let timer = try ClockTimer(.wallClock, at: start + .seconds(10), every: .seconds(10)) {
                _, event in
                events.append((event, time.wallClock - start))
            }
            try RunLoop.current.add(timer, forMode: .default)
            time.advance(by: .seconds(20))
            #expect(events.map(\.0) == [.fired(count: 1), .fired(count: 1)])
            #expect(events.map(\.1) == [.seconds(10), .seconds(20)])
            time.wallClock = start + .seconds(105)
            time.advance(by: .zero)
            #expect(events.map(\.0).dropFirst(2) == [.clockWasSet, .fired(count: 8)])
            timer.close()
        }
    }

    @Test func `a machine that sleeps moves the boot time and no timer`() throws {
        try withVirtualTime { time in
            var fired: [String] = []
            let boot = try ClockTimer(.bootTime, at: ClockTimer.Clock.bootTime.now + .seconds(60)) { _, _ in
                fired.append("boot time")
            }
            try RunLoop.current.add(boot, forMode: .default)
            Timer.scheduled(after: .seconds(60)) { _ in fired.append("timer") }
            time.suspendMachine(for: .seconds(60))
            time.advance(by: .zero)
            #expect(fired == ["boot time"])
            time.advance(by: .seconds(60))
            #expect(fired == ["boot time", "timer"])
            boot.close()
        }
    }

    // MARK: Tasks

    @Test func `a task's sleep on the loop's clock passes at once`() async throws {
        try await withVirtualTime { time in
            let start = time.now
            try await time.loop.clock().sleep(for: .seconds(3600))
            #expect(time.now == start + .seconds(3600))
            try await time.advance(by: .seconds(60))
            #expect(time.now == start + .seconds(3660))
        }
    }

    @Test @MainActor func `the main loop has virtual time, too`() async throws {
        try await withVirtualTime { time in
            let start = time.now
            try await RunLoop.main.clock().sleep(for: .seconds(3600))
            #expect(time.now == start + .seconds(3600))
        }
    }
}

@Suite(.runLoop) struct RunLoopTraitTests {
    @Test func `a test runs on a thread of its own`() throws {
        #expect(RunLoop.current !== RunLoop.main)
        #expect(RunLoop.current.currentMode == nil)
    }

    @Test func `while a test awaits something its thread runs the loop`() async {
        let loop = currentLoop()
        await withCheckedContinuation { continuation in
            loop.add(Timer(fireDate: .now) { _ in continuation.resume() }, forMode: .default)
        }
        #expect(currentLoop() === loop)
    }

    @Test @MainActor func `the main loop is served while a test on the main actor awaits something`() async {
        await withCheckedContinuation { continuation in
            Timer.scheduled(after: .zero) { _ in continuation.resume() }
        }
        #expect(currentLoop() === RunLoop.main)
    }
}

@Suite struct HangingTestTests {
    @Test(.expectsIssue("waiting in default"), .runLoop(limit: .milliseconds(100)))
    func `a test that runs its loop in vain fails with what the loop says`() {
        Timer.scheduled(after: .seconds(3600)) { _ in }
        RunLoop.current.run(in: .default)
    }

    @Test(.expectsIssue("not ended within its limit"), .runLoop(limit: .milliseconds(100)))
    func `a task that waits in vain is cancelled`() async {
        let never = AsyncStream<Void> { _ in }
        for await _ in never {}
    }
}

private func currentLoop() -> RunLoop { .current }

/// Expects the test to record an issue that contains a text.
private struct ExpectsIssue: TestTrait, TestScoping {
    let text: String

    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await withKnownIssue {
            try await function()
        } matching: { issue in
            issue.comments.contains { "\($0)".contains(text) }
        }
    }
}

extension Trait where Self == ExpectsIssue {
    fileprivate static func expectsIssue(_ text: String) -> Self { Self(text: text) }
}
