import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct DelayedPerformTests {
    @Test func `a delayed block runs once, in the default mode, not before its delay`() {
        let loop = RunLoop.current
        let asked = Deadline.now
        var runs: [Deadline] = []
        let token = loop.perform(after: .milliseconds(5)) { runs.append(.now) }
        #expect(loop.contains(token, forMode: .default))
        #expect(!loop.contains(token, forMode: .tracking))
        #expect(loop.run(in: .default) == .finished)
        #expect(runs.count == 1)
        #expect(runs[0] >= asked + .milliseconds(5))
        #expect(!token.isValid)
    }

    @Test(arguments: [Duration.zero, .seconds(-3)])
    func `no delay means a later pass, never at once`(delay: Duration) async throws {
        let trace = try await traced { loop, trace in
            loop.perform(after: delay) {
                trace("first")
                loop.perform(after: delay) { trace("second") }
                trace("asked")
            }
            trace("before")
            loop.poll()
            trace("next pass")
            loop.poll()
        }
        #expect(trace == ["before", "first", "asked", "next pass", "second"])
    }

    @Test func `it does not run unless the loop runs in one of its modes`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform(after: .zero, inModes: [.custom, .modalPanel]) { trace("run") }
            loop.hold(.default)
            loop.poll()
            loop.poll(.tracking)
            trace("now")
            loop.poll(.modalPanel)
            loop.poll(.custom)
        }
        #expect(trace == ["now", "run"])
    }

    @Test func `a block for the common modes runs once, in the first of them to run`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform(after: .zero, inModes: [.common]) { trace("run") }
            loop.poll(.tracking)
            loop.poll()
        }
        #expect(trace == ["run"])
    }

    @Test func `it keeps the mode from being empty, and does not make a run return`() {
        let loop = RunLoop.current
        var runs = 0
        loop.hold(.default)
        for _ in 0..<3 { loop.perform(after: .milliseconds(1)) { runs += 1 } }
        #expect(loop.run(mode: .default, before: .after(milliseconds: 10)))
        #expect(runs == 3)
        let token = loop.perform(after: .seconds(900), inModes: [.custom]) {}
        #expect(loop.run(mode: .custom, before: .distantPast))
        token.invalidate()
        #expect(!loop.run(mode: .custom, before: .distantPast))
    }

    @Test func `requests that are due together run by date, then in the order of request`() async throws {
        let trace = try await traced { loop, trace in
            for index in 0..<50 { loop.perform(after: .zero) { trace("\(index)") } }
            Deadline.now.busyWait()
            loop.poll()
        }
        #expect(trace == (0..<50).map { "\($0)" })
    }

    @Test func `the block is kept until it has run, then freed; a cancelled one is freed at once`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let freed = Shared<[String]>([])
            let ran = request(after: .zero, AtEnd { freed.update { $0.append("ran") } })
            let cancelled = request(after: .seconds(60), AtEnd { freed.update { $0.append("cancelled") } })
            #expect(freed.value.isEmpty)
            loop.poll()
            #expect(freed.value == ["ran"])
            cancelled.invalidate()
            #expect(freed.value == ["ran", "cancelled"])
            #expect(!ran.isValid)
        }
    }

    @Test func `cancelling inside another request of the same batch prevents the cancelled one`() async throws
    {
        let trace = try await traced { loop, trace in
            let tokens = Shared<[Timer]>([])
            loop.perform(after: .zero) {
                trace("first")
                for token in tokens.value { token.invalidate() }
            }
            tokens.value = [loop.perform(after: .zero, inModes: [.default, .common]) { trace("cancelled") }]
            loop.perform(after: .zero) { trace("last") }
            Deadline.now.busyWait()
            loop.poll()
        }
        #expect(trace == ["first", "last"])
    }

    @Test func `a request in no mode is dropped`() {
        let freed = Shared(false)
        _ = request(after: .zero, inModes: [], AtEnd { freed.value = true })
        #expect(freed.value)
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test func `a delayed block for another thread's loop traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "other")
            thread.runLoop.perform(after: .zero) {}
        }
        #expect(result.message.contains("must be called on the loop's own thread"))
    }
}

private func request(after delay: Duration, inModes modes: [RunLoop.Mode] = [.default], _ canary: AtEnd)
    -> Timer
{
    RunLoop.current.perform(after: delay, inModes: modes) { withExtendedLifetime(canary) {} }
}
