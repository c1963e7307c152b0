import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct JobServingTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    /// Starts a task whose first job waits in `modes`, and which notes `name`.
    private func start(_ name: String, inModes modes: [RunLoop.Mode] = [.common]) {
        Task(executorPreference: loop.executor(inModes: modes)) { trace(name) }
    }

    /// Starts a task that runs the loop in `mode`, in a synchronous frame of its job.
    private func startNested(in mode: RunLoop.Mode, inModes modes: [RunLoop.Mode]) {
        Task(executorPreference: loop.executor(inModes: modes)) { trace.nest(in: mode) }
    }

    @Test func `a job lets an activation begin, and does not keep the mode from being empty`() {
        start("job")
        trace("\(loop.run(in: .default))")
        #expect(loop.run(in: .default) == .finished)
        #expect(trace.all == ["job", "finished"])
    }

    @Test func `a job makes run before a date return`() {
        loop.hold(.default)
        start("job")
        #expect(loop.run(mode: .default, before: .minutesAway))
        #expect(trace.all == ["job"])
        start("another")
        #expect(loop.run(in: .default, until: .minutesAway, returnAfterSourceHandled: true) == .handledSource)
        #expect(trace.all == ["job", "another"])
    }

    @Test func `jobs run before blocks, in the order of their arrival`() {
        loop.perform { trace("block") }
        for number in 0..<3 { start("\(number)") }
        loop.poll()
        #expect(trace.all == ["0", "1", "2", "block"])
    }

    @Test func `jobs wait while the loop runs in a mode that is not theirs`() {
        for mode in [RunLoop.Mode.default, .tracking, .custom] { loop.hold(mode) }
        start("default", inModes: [.default])
        start("custom", inModes: [.custom])
        start("common")
        start("both", inModes: [.default, .custom])
        for (mode, names) in [
            (.tracking, ["common"]), (.custom, ["custom", "both"]), (.default, ["default"]),
        ]
            as [(RunLoop.Mode, [String])]
        {
            loop.poll(mode)
            #expect(trace.take() == names)
        }
        start("job")
        loop.poll(.custom)
        #expect(trace.all == [])
        loop.addCommonMode(.custom)
        loop.poll(.custom)
        #expect(trace.all == ["job"])
    }

    @Test func `jobs from another thread come after those that wait for their mode already`() throws {
        for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
        start("early", inModes: [.custom])
        let (executor, trace) = (loop.executor(inModes: [.custom]), trace)
        try onAThread {
            for name in ["late", "later"] { Task(executorPreference: executor) { trace(name) } }
        }
        loop.poll()
        #expect(trace.all == [])
        loop.poll(.custom)
        #expect(trace.all == ["early", "late", "later"])
    }

    @Test func `a run nested in a job continues with the jobs after it`() {
        loop.hold(.custom)
        startNested(in: .custom, inModes: [.default, .custom])
        for number in 0..<3 { start("\(number)", inModes: [.default, .custom]) }
        loop.poll()
        #expect(trace.all == ["nested", "0", "1", "2", "returned"])
    }

    @Test func `a job that is enqueued by a job of a nested run is not forgotten`() {
        loop.hold(.default)
        loop.hold(.custom)
        startNested(in: .custom, inModes: [.default])
        Task(executorPreference: loop.executor(inModes: [.custom])) { start("outer", inModes: [.default]) }
        loop.run(in: .default, until: .minutesAway, returnAfterSourceHandled: true)
        #expect(trace.all == ["nested", "returned", "outer"])
    }

    @Test func `jobs that enqueue each other do not keep timers waiting`() {
        let isOver = Shared(false)
        Task(executorPreference: loop.executor()) { while !isOver.value { await Task.yield() } }
        Timer.scheduled(after: .milliseconds(1)) { _ in isOver.value = true }
        loop.run(in: .default)
        while loop.run(mode: .default, before: .distantPast) {}
        #expect(isOver.value)
    }

    /// Those of a pass that waits.
    @Test(arguments: [RunLoop.Activities.entry, .beforeTimers, .beforeSources, .beforeWaiting])
    func `a job that an observer enqueues runs before the loop sleeps`(activity: RunLoop.Activities) {
        loop.hold(.default)
        var isFirst = true
        loop.observe(activity) { _ in
            if isFirst { start("job") }
            isFirst = false
        }
        loop.run(in: .default, until: .minutesAway, returnAfterSourceHandled: true)
        #expect(trace.all == ["job"])
    }

    @Test func `a job of another thread wakes the loop`() async {
        let home = LoopThread()
        for _ in 0..<200 {
            home.loop.untilAsleep()
            #expect(await Task(executorPreference: home.executor) { home.loop.isCurrent }.value)
        }
    }

    // MARK: Suspensions

    @Test(arguments: TaskModeCase.all)
    func `a task continues in the modes of its executor, and waits in others`(_ test: TaskModeCase) {
        for mode in [RunLoop.Mode.default, .tracking, .custom, .outer] { loop.hold(mode) }
        let isDone = Shared(false)
        let clock = loop.clock(inModes: test.executorModes)
        let task = Task(executorPreference: loop.executor(inModes: test.executorModes)) {
            await Task.yield()
            trace(Task.isCancelled ? "cancelled" : "running")
            try? await clock.sleep(for: .microseconds(100))
            trace("slept")
            isDone.value = true
            loop.stop()
        }
        if test.isCancelled { task.cancel() }
        let run = Carrier { (mode: RunLoop.Mode) in
            if !test.isServed(in: mode) { loop.run(in: mode, until: .after(milliseconds: 1)) }
            while test.isServed(in: mode), !isDone.value { loop.run(in: mode) }
        }
        if test.isNested {
            loop.perform(inModes: [.outer]) { run.value(test.loopMode) }
            loop.poll(.outer)
        } else {
            run.value(test.loopMode)
        }
        trace("left")
        run.value(test.executorModes == [.custom] ? .custom : .default)
        let work = [test.isCancelled ? "cancelled" : "running", "slept"]
        #expect(trace.all == (test.isServed(in: test.loopMode) ? work + ["left"] : ["left"] + work))
    }
}

/// A mode that the loop runs in while a task waits for its executor.
struct TaskModeCase: Sendable {
    let loopMode: RunLoop.Mode
    let executorModes: [RunLoop.Mode]
    let isNested: Bool
    let isCancelled: Bool

    static let all: [Self] = {
        let flags = [false, true]
        return [RunLoop.Mode.default, .tracking, .custom].flatMap { loopMode in
            [[RunLoop.Mode.default], [.common], [.custom], [.default, .custom]].flatMap { modes in
                flags.flatMap { isNested in
                    flags.map {
                        Self(loopMode: loopMode, executorModes: modes, isNested: isNested, isCancelled: $0)
                    }
                }
            }
        }
    }()

    func isServed(in mode: RunLoop.Mode) -> Bool {
        executorModes.contains(mode) || (executorModes.contains(.common) && mode != .custom)
    }
}

extension Trace {
    /// Polls the current loop in `mode`, in a synchronous frame of asynchronous code.
    fileprivate func nest(in mode: RunLoop.Mode) {
        self("nested")
        RunLoop.current.poll(mode)
        self("returned")
    }
}
