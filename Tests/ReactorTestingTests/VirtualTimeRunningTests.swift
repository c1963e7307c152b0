import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// How far virtual time runs: in real time under a hold and while a thread is blocked, and to its end.
@Suite(.runLoop) struct VirtualTimeRunningTests {
    @Test func `each thread's timers fire under a hold, whichever loop waits last`() throws {
        try withVirtualTime { time in
            let (loop, thread, hold) = (RunLoop.current, try RunLoopThread(name: "worker"), time.hold())
            let timer = Timer(interval: .milliseconds(5)) { _ in loop.perform { loop.stop() } }
            thread.runLoop.add(timer, forMode: .default)
            waitUntil { thread.runLoop.isWaiting }
            loop.hold(.default)
            #expect(loop.run(in: .default) == .stopped)
            hold.end()
            thread.stop()
        }
    }

    @Test func `a clock timer fires under a hold`() throws {
        try withVirtualTime { time in
            let (loop, hold, clock) = (RunLoop.current, time.hold(), ClockTimer.Clock.bootTime)
            let timer = try ClockTimer(clock, at: clock.now + .milliseconds(5)) { timer, _ in timer.cancel() }
            try loop.add(timer, forMode: .default)
            #expect(loop.run(in: .default) == .finished)
            hold.end()
        }
    }

    /// The other thread begins the hold while the loop looks whether its peer does something.
    @Test func `a hold that begins before a jump lets the clock run`() throws {
        let pipe = try TestPipe()
        try withVirtualTime { time in
            let (start, loop) = (time.now, RunLoop.current)
            try loop.add(DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }, forMode: .default)
            let hold = Answer<VirtualTime.Hold>()
            let thread = try JoinableThread(name: "holder") {
                waitUntil { loop.isWaiting }
                hold.give(time.hold())
            }
            Timer.scheduled(after: .milliseconds(50)) { _ in loop.stop() }
            #expect(loop.run(in: .default) == .stopped)
            #expect(time.now >= start + .milliseconds(50))
            hold.wait().end()
            thread.join()
        }
    }

    @Test func `a loop sleeps while a thread is blocked whose own timer is late`() throws {
        try withVirtualTime { time in
            let (thread, child) = (
                try RunLoopThread(name: "worker"), try ChildProcess.spawn(.init("sleep", ["100"])).process
            )
            let timer = Timer(interval: .milliseconds(1), repeats: true) { _ in }
            RunLoop.current.add(timer, forMode: .default)
            time.advance(by: .milliseconds(1))
            let passCount = thread.runLoop.statistics.passes
            #expect(child.wait(until: .now + .milliseconds(50)) == nil)
            #expect(thread.runLoop.statistics.passes < passCount + 20)
            timer.invalidate()
            try child.send(.kill)
            #expect(child.wait() != nil)
            thread.stop()
        }
    }

    @Test(arguments: ["the clock", "the boot time"])
    func `a loop that waits under a hold learns that another thread moves`(_ moved: String) throws {
        try withVirtualTime { time in
            let (loop, hold, clock) = (RunLoop.current, time.hold(), ClockTimer.Clock.bootTime)
            let timer = try ClockTimer(clock, at: clock.now + .seconds(3600)) { _, _ in loop.stop() }
            try loop.add(timer, forMode: .default)
            let distance = Duration.seconds(3600) - .milliseconds(50)
            let thread = try JoinableThread(name: "mover") {
                waitUntil { loop.isWaiting }
                if moved == "the clock" {
                    time.skip(distance)
                } else {
                    time.suspendMachine(for: distance)
                }
            }
            #expect(loop.run(in: .default) == .stopped)
            thread.join()
            timer.cancel()
            hold.end()
        }
    }

    @Test func `blocks on several threads at once add up`() throws {
        try withVirtualTime { time in
            let (start, threads) = (time.now, try (1...2).map { try RunLoopThread(name: "blocker \($0)") })
            let (started, ended) = (Countdown(2), Countdown(2))
            for thread in threads {
                thread.runLoop.perform {
                    started.count()
                    started.wait()
                    for _ in 0..<10_000 { time.skip(.milliseconds(1)) }
                    ended.count()
                }
            }
            ended.wait()
            #expect(time.now == start + .seconds(20))
            for thread in threads { thread.stop() }
        }
    }

    @Test func `a thread with jobs that never wait ends within its time limit`() async throws {
        try await withVirtualTime { _ in
            let (thread, isOver) = (try RunLoopThread(name: "busy"), Shared(false))
            let task = Task(executorPreference: thread.executor) {
                while !isOver.value { await Task.yield() }
            }
            #expect(await !thread.shutDown(timeout: .milliseconds(10)))
            isOver.value = true
            await task.value
        }
    }

    @Test(arguments: [Duration.zero, .seconds(1)])
    func `blocks that post blocks all run at the last date, also when they stop the loop`(distance: Duration)
    {
        withVirtualTime { time in
            let (loop, count) = (RunLoop.current, Shared(0))
            @Sendable func post() {
                guard
                    count.update({
                        $0 += 1
                        return $0
                    }) < 20
                else { return }
                loop.perform { post() }
                loop.stop()
            }
            loop.perform { post() }
            time.advance(by: distance)
            #expect(count.value == 20)
        }
    }

    @Test func `what remains to be sent is sent after virtual time, and its thread ends then`() throws {
        let (server, size) = (try SocketPeer(listeningAt: .ipv4Loopback(port: 0)), 8_000_000)
        let address = try server.localAddress
        withVirtualTime { time in
            let (input, output) = Connection(to: address).streams
            output.writeBufferSize = size
            for stream in [input, output] as [Reactor.Stream] {
                stream.schedule(in: .current, forMode: .default)
                stream.open()
            }
            while !output.hasSpaceAvailable { time.advance(by: .milliseconds(1)) }
            #expect(output.write([UInt8](repeating: 1, count: size)) == size)
            output.close()
            input.close()
        }
        #expect(try server.accept().receiveToEnd()?.count == size)
    }

    // MARK: Misuse

    enum Misuse: String, CaseIterable, Codable, Sendable {
        case backwards, forever, nested, commonModes, idleInCommonModes
        case elsewhere, idleElsewhere, negativeCount, skipBack, suspendBack, skipAfterEnd, clockAfterEnd

        func commit() throws {
            switch self {
            case .backwards: withVirtualTime { $0.advance(by: .seconds(-1)) }
            case .forever: withVirtualTime { $0.advance(by: .seconds(Int64.max)) }
            case .nested: withVirtualTime { _ in withVirtualTime { _ in } }
            case .commonModes: withVirtualTime { $0.advance(by: .zero, inMode: .common) }
            case .idleInCommonModes: withVirtualTime { $0.runUntilIdle(inMode: .common) }
            case .elsewhere: try withVirtualTime { time in try onAThread { time.advance(by: .zero) } }
            case .idleElsewhere: try withVirtualTime { time in try onAThread { time.runUntilIdle() } }
            case .negativeCount: try TestConnection.pair().0.close(afterBytes: -1)
            case .skipBack: withVirtualTime { $0.skip(.seconds(-1)) }
            case .suspendBack: withVirtualTime { $0.suspendMachine(for: .seconds(-1)) }
            case .skipAfterEnd: withVirtualTime { $0 }.skip(.seconds(1))
            case .clockAfterEnd: withVirtualTime { $0 }.wallClock = .init(sinceEpoch: .zero)
            }
        }

        /// A part of the message.
        var words: String {
            switch self {
            case .backwards, .skipBack, .suspendBack: "back"
            case .forever: "end of the clock"
            case .nested: "already"
            case .commonModes, .idleInCommonModes: "name one of the common modes"
            case .elsewhere, .idleElsewhere: "on the thread that called withVirtualTime"
            case .negativeCount: "negative"
            case .skipAfterEnd, .clockAfterEnd: "has returned"
            }
        }
    }

    @Test(arguments: Misuse.allCases)
    func `misuse traps with a message`(misuse: Misuse) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [misuse] in
            try onAThread { try misuse.commit() }
        }
        #expect(result.message.contains(misuse.words), "\(result.message)")
    }
}
