import Reactor
import ReactorTesting
import Testing

/// Starts a task whose first job waits in `executor`, and which notes `name`.
private func start(_ name: String, on executor: RunLoop.Executor, _ trace: Trace) {
    Task(executorPreference: executor) { trace(name) }
}

@Suite(.runLoop) struct JobServingTests {
    @Test func `a job lets an activation begin, and does not keep the mode from being empty`() async throws {
        let events = try await traced { loop, trace in
            start("job", on: loop.executor(), trace)
            trace("\(loop.run(in: .default))")
            trace("\(loop.run(in: .default))")
        }
        #expect(events == ["job", "finished", "finished"])
    }

    @Test func `a job makes run before a date return`() async throws {
        let events = try await traced { loop, trace in
            loop.hold(.default)
            start("job", on: loop.executor(), trace)
            trace("\(loop.run(mode: .default, before: .minutesAway))")
            start("another", on: loop.executor(), trace)
            trace("\(loop.run(in: .default, until: .minutesAway, returnAfterSourceHandled: true))")
        }
        #expect(events == ["job", "true", "another", "handledSource"])
    }

    @Test func `jobs run before blocks, in the order of their arrival`() async throws {
        let events = try await traced { loop, trace in
            loop.perform { trace("block") }
            for number in 0..<3 { start("\(number)", on: loop.executor(), trace) }
            loop.poll()
        }
        #expect(events == ["0", "1", "2", "block"])
    }

    @Test func `jobs of the default mode wait while the loop runs in another`() async throws {
        let events = try await traced { loop, trace in
            for mode in [RunLoop.Mode.default, .tracking, .custom] { loop.hold(mode) }
            start("default", on: loop.executor(inModes: [.default]), trace)
            start("custom", on: loop.executor(inModes: [.custom]), trace)
            start("common", on: loop.executor(), trace)
            start("both", on: loop.executor(inModes: [.default, .custom]), trace)
            for mode in [RunLoop.Mode.tracking, .custom, .default] {
                trace("\(mode)")
                loop.poll(mode)
            }
        }
        #expect(
            events == [
                "UITrackingRunLoopMode", "common", "custom", "custom", "both", "kCFRunLoopDefaultMode",
                "default",
            ])
    }

    @Test func `a mode that becomes common has the jobs of the common modes`() async throws {
        let events = try await traced { loop, trace in
            loop.hold(.custom)
            start("job", on: loop.executor(), trace)
            loop.poll(.custom)
            trace("common")
            loop.addCommonMode(.custom)
            loop.poll(.custom)
        }
        #expect(events == ["common", "job"])
    }

    @Test func `a run nested in a job continues with the jobs after it`() async throws {
        let events = try await traced { loop, trace in
            loop.hold(.custom)
            let executor = loop.executor(inModes: [.default, .custom])
            Task(executorPreference: executor) { trace.nest(in: .custom) }
            for number in 0..<3 { start("\(number)", on: executor, trace) }
            loop.poll()
            trace("over")
        }
        #expect(events == ["nested", "0", "1", "2", "returned", "over"])
    }

    @Test func `a job that is enqueued by a job of a nested run is not forgotten`() async throws {
        let events = try await traced { loop, trace in
            loop.hold(.default)
            loop.hold(.custom)
            let (outer, inner) = (loop.executor(inModes: [.default]), loop.executor(inModes: [.custom]))
            Task(executorPreference: outer) { trace.nest(in: .custom) }
            Task(executorPreference: inner) { start("outer", on: outer, trace) }
            loop.run(in: .default, until: .minutesAway, returnAfterSourceHandled: true)
        }
        #expect(events == ["nested", "returned", "outer"])
    }

    @Test func `jobs that enqueue each other do not keep timers waiting`() async throws {
        let isOver = Shared(false)
        let events = try await traced { loop, trace in
            Task(executorPreference: loop.executor()) { while !isOver.value { await Task.yield() } }
            Timer.scheduled(after: .milliseconds(1)) { _ in
                trace("timer")
                isOver.value = true
            }
            loop.run(in: .default)
            while loop.run(mode: .default, before: .distantPast) {}
        }
        #expect(events == ["timer"])
    }

    @Test(arguments: RunLoop.Activities.everyOne)
    func `a job that an observer enqueues runs before the loop sleeps`(activity: RunLoop.Activities)
        async throws
    {
        let events = try await traced { loop, trace in
            loop.hold(.default)
            var isFirst = true
            loop.observe(activity) { _ in
                if isFirst { start("job", on: loop.executor(), trace) }
                isFirst = false
            }
            loop.run(in: .default, until: .minutesAway, returnAfterSourceHandled: true)
        }
        #expect(events == ["job"])
    }

    @Test func `a job of another thread wakes the loop`() async throws {
        try await withRunLoopThread(name: "asleep") { thread in
            for _ in 0..<200 {
                await yieldUntil { thread.runLoop.isWaiting }
                let isOnLoop = await Resident(thread.executor).isOnLoop
                #expect(isOnLoop)
            }
        }
    }
}

extension RunLoop.Activities {
    /// Those of a pass that waits.
    fileprivate static let everyOne: [RunLoop.Activities] = [
        .entry, .beforeTimers, .beforeSources, .beforeWaiting,
    ]
}

extension Trace {
    /// Polls the current loop in `mode`, in a synchronous frame of a job.
    fileprivate func nest(in mode: RunLoop.Mode) {
        self("nested")
        RunLoop.current.poll(mode)
        self("returned")
    }
}
