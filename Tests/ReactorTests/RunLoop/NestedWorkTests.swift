import Reactor
import Testing

@Suite struct NestedWorkTests {
    @Test func `a job that an observer of a nested run enqueues runs before that run sleeps`() async throws {
        let events = try await traced { loop, trace in
            loop.hold(.custom)
            let executor = loop.executor(inModes: [.default, .custom])
            var isFirst = true
            loop.observe(.beforeWaiting, in: .custom) { _ in
                if isFirst { Task(executorPreference: executor) { trace("job") } }
                isFirst = false
            }
            Timer.scheduled(after: .seconds(5), forMode: .custom) { _ in trace("slept") }
            Task(executorPreference: executor) { trace.nestUntilHandled() }
            loop.poll()
        }
        #expect(events == ["job", "handledSource"])
    }

    @Test func `a source that is signalled before a nested run of another mode waits for the next pass`()
        async throws
    {
        let events = try await traced { loop, trace in
            loop.hold(.custom)
            loop.observe(.beforeTimers) { _ in trace("pass") }
            let second = RunLoop.Source { trace("second") }
            let first = RunLoop.Source {
                trace("first")
                second.signal()
                loop.poll(.custom)
            }
            for source in [first, second] { loop.add(source, forMode: .default) }
            first.signal()
            loop.poll()
            loop.poll()
        }
        #expect(events == ["pass", "first", "pass", "second"])
    }
}

extension Trace {
    /// Runs the current loop within a job until something is handled, and notes the result.
    fileprivate func nestUntilHandled() {
        let result = RunLoop.current.run(in: .custom, until: .minutesAway, returnAfterSourceHandled: true)
        self("\(result)")
    }
}
