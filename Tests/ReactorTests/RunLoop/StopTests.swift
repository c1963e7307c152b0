import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct StopTests {
    @Test func `a stop within a handled source is not reported, and does not affect the next activation`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { loop.stop() }
            loop.add(source, forMode: .default)
            source.signal()
            trace("\(loop.run(in: .default, returnAfterSourceHandled: true))")
            trace("\(loop.run(in: .default, until: .after(milliseconds: 2)))")
        }
        #expect(trace == ["handledSource", "timedOut"])
    }

    @Test func `a stop without an activation is not remembered`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.stop()
            trace("\(loop.run(in: .default, until: .after(milliseconds: 2)))")
        }
        #expect(trace == ["timedOut"])
    }

    @Test func `a stop while an activation begins makes no pass, and still notifies the exit observers`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.observe { activity in
                trace("\(activity)")
                if activity == .entry { loop.stop() }
            }
            trace("\(loop.run(in: .default))")
        }
        #expect(trace == ["entry", "exit", "stopped"])
    }

    @Test func `a stop as an activation ends does not stop the next`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.observe(.exit) { _ in loop.stop() }
            loop.poll()
            trace("\(loop.run(in: .default, until: .after(milliseconds: 2)))")
        }
        #expect(trace == ["timedOut"])
    }

    @Test func `a stop ends the innermost activation only`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.hold(.inner)
            Timer.scheduled(after: .zero) { _ in
                Timer.scheduled(after: .zero, forMode: .inner) { _ in loop.stop() }
                trace("inner \(loop.run(in: .inner))")
            }
            trace("outer \(loop.run(in: .default, until: .after(milliseconds: 10)))")
        }
        #expect(trace == ["inner stopped", "outer timedOut"])
    }

    @Test func `a stop before nesting stops the outer activation once the inner one has ended`() async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.hold(.inner)
            loop.perform {
                loop.stop()
                trace("inner \(loop.run(in: .inner, until: .after(milliseconds: 2)))")
            }
            trace("outer \(loop.run(in: .default))")
        }
        #expect(trace == ["inner timedOut", "outer stopped"])
    }

    @Test func `a stop from another thread ends a wait`() async throws {
        let waiting = Answer<RunLoop>()
        async let result = onItsOwnThread {
            let loop = RunLoop.current
            loop.hold(.default)
            loop.observe(.beforeWaiting) { _ in waiting.give(loop) }
            return loop.run(in: .default)
        }
        try await onItsOwnThread { waiting.wait().stop() }
        #expect(try await result == .stopped)
    }

    @Test(arguments: [RunLoop.Activities.beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting])
    func `a stop at any point of a pass keeps the loop from sleeping again`(activity: RunLoop.Activities)
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.observe(activity) { _ in loop.stop() }
            if activity == .afterWaiting { Timer.scheduled(after: .milliseconds(1)) { _ in } }
            trace("\(loop.run(in: .default))")
        }
        #expect(trace == ["stopped"])
    }

    @Test func `stopping a loop's thread lets a nested activation end by itself, then ends the thread`()
        async throws
    {
        let trace = Trace()
        let thread = try RunLoopThread(name: "nesting")
        let isNested = Answer<Bool>()
        let isStopped = Shared(false)
        thread.runLoop.perform {
            let loop = RunLoop.current
            let timer = Timer.scheduled(every: .milliseconds(1), forMode: .common) { timer in
                guard isStopped.value else { return isNested.give(true) }
                trace("inner goes on")
                timer.invalidate()
                loop.stop()
            }
            Timer.scheduled(after: .seconds(1000)) { _ in trace("timer \(timer)") }
            trace("inner \(loop.run(in: .default))")
        }
        try await onItsOwnThread {
            _ = isNested.wait()
            thread.runLoop.perform { isStopped.value = true }
            thread.stop()
            trace("ended")
        }
        #expect(trace.all == ["inner goes on", "inner stopped", "ended"])
    }

    @Test func `stopping a loop's thread twice, or on itself, is safe`() async throws {
        let thread = try RunLoopThread(name: "stopped twice")
        thread.runLoop.perform { thread.stop() }
        try await onItsOwnThread {
            thread.stop()
            thread.stop()
        }
        #expect(thread.runLoop.currentMode == nil)
    }
}
