import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct ActivationTests {
    @Test func `results have Core Foundation's values`() {
        #expect(RunLoop.RunResult.finished.rawValue == 1)
        #expect(RunLoop.RunResult.stopped.rawValue == 2)
        #expect(RunLoop.RunResult.timedOut.rawValue == 3)
        #expect(RunLoop.RunResult.handledSource.rawValue == 4)
    }

    @Test func `an empty or unknown mode returns at once and notifies no observer`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe(in: .custom) { trace("\($0)") }
            trace("\(loop.run(in: .custom))")
            trace("\(loop.run(mode: .custom, before: .distantFuture))")
            trace("\(loop.run(mode: .inner, before: .distantFuture))")
            loop.run(until: .distantFuture)
            loop.run()
        }
        #expect(trace == ["finished", "false", "false"])
    }

    @Test(arguments: Kind.allCases)
    func `any item but an observer keeps a mode from being empty`(kind: Kind) async throws {
        let trace = try await traced { loop, trace in
            let item = try TestItem(kind, trace, "")
            try item.add(to: loop, .custom)
            trace("\(loop.run(mode: .custom, before: .distantPast))")
        }
        #expect(trace.last == (kind == .observer ? "false" : "true"))
    }

    @Test func `a mode with nothing but a block runs it and then waits for its limit`() async throws {
        let limit = Duration.milliseconds(20)
        let (result, time) = try await onItsOwnThread {
            let hasRun = Shared(false)
            RunLoop.current.perform(inModes: [.custom]) { hasRun.value = true }
            let start = Deadline.now
            let result = RunLoop.current.run(in: .custom, until: start.advanced(by: limit))
            return (hasRun.value ? result : .finished, start.duration(to: .now))
        }
        #expect(result == .timedOut)
        #expect(time >= limit)
    }

    @Test func `an activation ends before its limit when its mode becomes empty`() async throws {
        let trace = try await traced { loop, trace in
            Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in trace("timer") }
            trace("\(loop.run(in: .custom, until: .minutesAway))")
        }
        #expect(trace == ["timer", "finished"])
    }

    @Test(arguments: [RunLoop.Activities.beforeTimers, .beforeSources, .beforeWaiting])
    func `an activation whose last item is removed before it sleeps ends at once`(
        activity: RunLoop.Activities
    ) async throws {
        let result = try await onItsOwnThread {
            let held = RunLoop.current.hold(.default)
            RunLoop.current.observe(activity) { _ in held.invalidate() }
            return RunLoop.current.run(in: .default, until: .minutesAway)
        }
        #expect(result == .finished)
    }

    @Test func `an activation ends at once when a block removes its last item`() async throws {
        let result = try await onItsOwnThread {
            let held = RunLoop.current.hold(.default)
            RunLoop.current.perform { held.invalidate() }
            return RunLoop.current.run(in: .default, until: .minutesAway)
        }
        #expect(result == .finished)
    }

    @Test func `an activation whose last item another thread removes before the first pass ends`()
        async throws
    {
        let result = try await onItsOwnThread {
            let held = RunLoop.current.hold(.default)
            RunLoop.current.observe(.entry) { _ in
                let thread = try? JoinableThread(name: "taking away") { held.invalidate() }
                thread?.join()
            }
            return RunLoop.current.run(in: .default, until: .minutesAway)
        }
        #expect(result == .finished)
    }

    @Test func `an activation lasts until its limit and not less`() async throws {
        let time = try await onItsOwnThread {
            RunLoop.current.hold(.default)
            let start = Deadline.now
            let result = RunLoop.current.run(in: .default, until: start.advanced(by: .milliseconds(10)))
            return result == .timedOut ? start.duration(to: .now) : .zero
        }
        #expect(time >= .milliseconds(10))
    }

    @Test func `any number of timers fire without ending run before a date`() async throws {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { trace("source") }
            loop.add(source, forMode: .default)
            var count = 0
            Timer.scheduled(every: .milliseconds(1)) { timer in
                count += 1
                trace("\(count)")
                guard count == 5 else { return }
                timer.invalidate()
                source.signal()
            }
            trace("\(loop.run(mode: .default, before: .distantFuture))")
        }
        #expect(trace == ["1", "2", "3", "4", "5", "source", "true"])
    }

    @Test func `a handled descriptor ends run before a date`() async throws {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            try loop.add(DescriptorSource(pipe, trace, "read"), forMode: .default)
            Timer.scheduled(after: .milliseconds(1)) { _ in pipe.put(2) }
            trace("\(loop.run(mode: .default, before: .distantFuture))")
        }
        #expect(trace == ["read", "true"])
    }

    @Test func `timers, observers and blocks do not count as handled`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe { _ in }
            loop.perform {}
            Timer.scheduled(after: .zero) { _ in trace("timer") }
            loop.hold(.default)
            let limit = Deadline.after(milliseconds: 5)
            trace("\(loop.run(in: .default, until: limit, returnAfterSourceHandled: true))")
        }
        #expect(trace == ["timer", "timedOut"])
    }

    @Test func `a handled source takes precedence over a deadline that has passed, and both over a stop`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { loop.stop() }
            loop.add(source, forMode: .default)
            for returns in [true, false] {
                source.signal()
                trace("\(loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: returns))")
            }
            source.signal()
            trace("\(loop.run(in: .default))")
        }
        #expect(trace == ["handledSource", "timedOut", "stopped"])
    }

    @Test func `a date in the past makes one polling pass`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform { trace("block") }
            for order in [1, 2] {
                let source = RunLoop.Source(order: order) { trace("source \(order)") }
                loop.add(source, forMode: .default)
                source.signal()
            }
            for name in ["a", "b"] { Timer.scheduled(after: .zero) { _ in trace("timer \(name)") } }
            trace("\(loop.run(mode: .default, before: .distantPast))")
        }
        #expect(trace == ["block", "source 1", "timer a", "timer b", "true"])
    }

    @Test func `run until a date makes a pass even if the date has passed`() async throws {
        let trace = try await traced { loop, trace in
            Timer.scheduled(after: .zero) { _ in trace("timer") }
            loop.run(until: .distantPast)
        }
        #expect(trace == ["timer"])
    }

    @Test func `run(until:) continues after a source, until nothing is left`() async throws {
        let trace = try await traced { loop, trace in
            let held = loop.hold(.default)
            loop.performAsSource {
                trace("source")
                RunLoop.current.performAsSource {
                    trace("block")
                    held.invalidate()
                }
            }
            loop.run(until: .minutesAway)
        }
        #expect(trace == ["source", "block"])
    }

    @Test func `run until a date lasts until the date while there is something to run for`() async throws {
        let isLate = try await onItsOwnThread {
            RunLoop.current.hold(.default)
            let limit = Deadline.after(milliseconds: 5)
            RunLoop.current.run(until: limit)
            return Deadline.now >= limit
        }
        #expect(isLate)
    }

    @Test func `run ends when nothing is left, and not before`() async throws {
        let trace = try await traced { loop, trace in
            Timer.scheduled(after: .milliseconds(1)) { _ in
                trace("first")
                loop.stop()
                Timer.scheduled(after: .milliseconds(1)) { _ in trace("second") }
            }
            loop.run()
        }
        #expect(trace == ["first", "second"])
    }
}
