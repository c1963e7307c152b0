import Dispatch
import Glibc
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

    @Test func `advancing moves the clock on although the mode is empty, or a callback stops the loop`() {
        withVirtualTime { time in
            let (start, loop) = (time.now, RunLoop.current)
            var dates: [Duration] = []
            time.advance(by: .seconds(1), inMode: .tracking)
            for seconds in [2, 3] {
                Timer.scheduled(after: .seconds(seconds)) { _ in
                    dates.append(start.duration(to: .now))
                    loop.stop()
                }
            }
            time.advance(by: .seconds(5))
            #expect(time.now == start + .seconds(6) && dates == [.seconds(3), .seconds(4)])
        }
    }

    @Test func `an advance in an empty mode serves the loops of other threads at their dates`() throws {
        try withVirtualTime { time in
            let (start, thread, dates) = (time.now, try RunLoopThread(name: "worker"), Shared<[Duration]>([]))
            let timer = Timer(interval: .seconds(1), repeats: true) { _ in
                dates.update { $0.append(start.duration(to: .now)) }
            }
            thread.runLoop.add(timer, forMode: .default)
            time.advance(by: .milliseconds(3500), inMode: .tracking)
            thread.stop()
            #expect(dates.value == (1...3).map { .seconds($0) })
        }
    }

    @Test func `what becomes due during a block is served late`() {
        withVirtualTime { time in
            let start = time.now
            var date: Duration?
            Timer.scheduled(after: .seconds(1)) { _ in time.skip(.seconds(5)) }
            Timer.scheduled(after: .seconds(2)) { _ in date = start.duration(to: .now) }
            time.advance(by: .seconds(6))
            #expect(date == .seconds(6))
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
        // On a busy machine a peer may need longer than the clock waits for it.
        let attemptCount = worker == "a peer" ? 20 : 1
        #expect(try (0..<attemptCount).contains { _ in try virtualTime(of: worker) < .seconds(60) })
    }

    /// The virtual time that passes while the loop waits for `worker`, beside a timer of 60 seconds.
    private func virtualTime(of worker: String) throws -> Duration {
        let (pipe, lines) = (try TestPipe(), try TemporaryFile(String(repeating: "\n", count: 200_000)))
        // Not started inside, as that may take longer than the clock waits for a peer.
        let isAwaited = Countdown(1)
        let peer = try JoinableThread(name: "peer") {
            isAwaited.wait()
            pipe.put()
        }
        defer {
            isAwaited.count()
            peer.join()
        }
        return try withVirtualTime { time in
            let (start, loop) = (time.now, RunLoop.current)
            Timer.scheduled(after: .seconds(60)) { _ in loop.stop() }
            switch worker {
            case "a peer":
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in loop.stop() }
                try loop.add(source, forMode: .default)
                isAwaited.count()
            case "a child process":
                let child = try ChildProcess.spawn(.init("sleep", ["0.1"])).process
                try loop.add(ProcessSource(child) { _, _ in loop.stop() }, forMode: .default)
            default:
                let reader = LineReader(InputStream(path: lines.path), into: 0, on: .global()) {
                    count, _, _ in count += 1
                }
                reader.start { report in
                    #expect(report.output.value == 200_000)
                    loop.stop()
                }
            }
            #expect(loop.run(in: .default) == .stopped)
            return start.duration(to: .now)
        }
    }

    @Test func `a held clock does not jump`() throws {
        try withVirtualTime { time in
            let (start, loop, hold) = (time.now, RunLoop.current, time.hold())
            Timer.scheduled(after: .seconds(3600)) { _ in loop.stop() }
            let thread = try JoinableThread(name: "holder") {
                waitUntil { loop.isWaiting }
                #expect(time.now < start + .seconds(3600))
                hold.end()
            }
            #expect(loop.run(in: .default) == .stopped)
            #expect(start.duration(to: .now) >= .seconds(3600))
            thread.join()
        }
    }

    @Test func `a blocking call lets the clock run`() throws {
        try withVirtualTime { time in
            let (start, child) = (time.now, try ChildProcess.spawn(.init("sleep", ["100"])).process)
            #expect(child.wait(until: .now + .milliseconds(10)) == nil)
            #expect(time.now >= start + .milliseconds(10))
            try child.send(.kill)
            #expect(child.wait() != nil)
        }
    }

    /// The timer fires while the call blocks, as the other loop is busy before.
    @Test(arguments: [true, false])
    func `a blocking call ends in time although another thread's loop waits, or is busy`(isBusy: Bool) throws
    {
        try withVirtualTime { time in
            let (loop, thread) = (RunLoop.current, try RunLoopThread(name: "blocked"))
            let (child, ended) = (try ChildProcess.spawn(.init("sleep", ["100"])).process, Countdown(1))
            thread.runLoop.perform {
                loop.perform { Timer.scheduled(after: .milliseconds(2)) { _ in if isBusy { ended.wait() } } }
                #expect(child.wait(until: .now + .milliseconds(20)) == nil)
                ended.count()
                loop.perform { loop.stop() }
            }
            Timer.scheduled(after: .seconds(3600)) { _ in }
            #expect(loop.run(in: .default) == .stopped)
            try child.send(.kill)
            #expect(child.wait() != nil)
            thread.stop()
        }
    }

    @Test func `a queue's callback on the main thread leaves that its time`() async throws {
        try await Task { @MainActor in
            try await withVirtualTime { time in
                let (input, events) = (InputStream(data: [1]), Shared(0))
                let delegate = Counting(events)
                input.delegate = delegate
                input.setDispatchQueue(.main)
                input.open()
                let start = time.now
                while events.value < 2 { try await time.advance(by: .seconds(1)) }
                #expect(time.now == Deadline.now && time.now > start)
                input.close()
            }
        }.value
    }

    private final class Counting: StreamDelegate, Sendable {
        private let events: Shared<Int>

        init(_ events: Shared<Int>) { self.events = events }

        func stream(_ aStream: Stream, handle event: Stream.Event) { events.update { $0 += 1 } }
    }

    @Test func `a blocking read gets what the loop of another thread writes later`() throws {
        let pipe = try TestPipe()
        try withVirtualTime { time in
            let thread = try RunLoopThread(name: "writer")
            thread.runLoop.add(Timer(interval: .milliseconds(5)) { _ in pipe.put() }, forMode: .default)
            let input = InputStream(descriptor: pipe.readEnd)
            input.open()
            #expect(input.read(upTo: 1) == [0])
            thread.stop()
        }
    }

    @Test func `an advance serves what follows from what it serves`() {
        withVirtualTime { time in
            var count = 0
            func chain() {
                count += 1
                if count < 6 { Timer.scheduled(after: .zero) { _ in chain() } }
            }
            chain()
            time.advance(by: .zero)
            #expect(count == 6)
        }
    }

    @Test func `a run until idle waits for other threads' loops, outlasts a stop, and may be nested`() throws
    {
        try withVirtualTime { time in
            let (start, loop, fired) = (time.now, RunLoop.current, Shared<[Int]>([]))
            let thread = try RunLoopThread(name: "worker")
            thread.runLoop.add(
                Timer(interval: .seconds(9)) { _ in fired.update { $0.append(9) } }, forMode: .default)
            for seconds in [1, 2] {
                Timer.scheduled(after: .seconds(seconds)) { _ in
                    fired.update { $0.append(seconds) }
                    loop.stop()
                    if seconds == 2 { time.runUntilIdle() }
                }
            }
            time.runUntilIdle()
            #expect(fired.value == [1, 2, 9] && time.now == start + .seconds(9))
            thread.stop()
        }
    }

    @Test func `a run until idle serves what a callback schedules after a nested one`() {
        withVirtualTime { time in
            var hasFired = false
            Timer.scheduled(after: .seconds(1)) { _ in
                time.runUntilIdle()
                Timer.scheduled(after: .seconds(1)) { _ in hasFired = true }
                RunLoop.current.stop()
            }
            time.runUntilIdle()
            #expect(hasFired)
        }
    }

    @Test func `after a hold the clock stands still while code runs`() {
        withVirtualTime { time in
            let hold = time.hold()
            RunLoop.current.run(in: .default, until: .now + .milliseconds(1))
            Timer.scheduled(after: .milliseconds(1)) { _ in }
            RunLoop.current.run(in: .default, until: .now + .milliseconds(2))
            hold.end()
            let now = time.now
            #expect((0..<1000).allSatisfy { _ in Deadline.now == now })
        }
    }

    private actor Home {
        private let executor: RunLoop.Executor
        nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

        init(on loop: RunLoop) { executor = loop.executor() }

        func advance() async throws -> Duration {
            try await withVirtualTime { time in
                let start = time.now
                try await time.advance(by: .seconds(60))
                return start.duration(to: time.now)
            }
        }
    }

    @Test func `an actor on a loop has virtual time in a closure that does not use the actor`() async throws {
        let thread = try RunLoopThread(name: "home")
        #expect(try await Home(on: thread.runLoop).advance() == .seconds(60))
        await thread.shutDown()
    }

    // MARK: Before and after

    @Test func `a thread's loop that the test leaves behind waits in the kernel's time`() throws {
        let (thread, passes) = (Shared<RunLoopThread?>(nil), Shared(0))
        try withVirtualTime { time in
            thread.value = try RunLoopThread(name: "left")
            thread.value?.runLoop.add(
                Timer(interval: .seconds(3600), repeats: true) { _ in passes.update { $0 += 1 } },
                forMode: .default)
            time.advance(by: .seconds(7200))
        }
        let loop = try #require(thread.value?.runLoop)
        for _ in 0..<10 { loop.performAndWait {} }
        waitUntil { loop.isWaiting }
        #expect((2...3).contains(passes.value))
        thread.value?.stop()
    }

    @Test(arguments: [true, false])
    func `a clock timer that crosses the border of virtual time fires`(isArmedInside: Bool) throws {
        let loop = RunLoop.current
        var (hasFired, timer) = (false, ClockTimer?.none)
        func arm() throws {
            let clock = ClockTimer.Clock.bootTime
            timer = try ClockTimer(clock, at: clock.now + .milliseconds(1)) { timer, _ in
                hasFired = true
                timer.cancel()
            }
            try loop.add(timer!, forMode: .default)
        }
        if isArmedInside { try withVirtualTime { _ in try arm() } } else { try arm() }
        if isArmedInside {
            while !hasFired { loop.run(in: .default, returnAfterSourceHandled: true) }
        } else {
            withVirtualTime { time in
                let hold = time.hold()
                while !hasFired { loop.run(in: .default, returnAfterSourceHandled: true) }
                hold.end()
            }
        }
        #expect(hasFired)
    }
}
