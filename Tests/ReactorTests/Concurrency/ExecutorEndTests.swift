import Dispatch
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ExecutorEndTests {
    private let trace = Trace()

    @Test func `a thread that is stopped runs the jobs that are queued`() throws {
        let thread = try RunLoopThread(name: "stopped")
        let (held, released) = (Countdown(1), Countdown(1))
        thread.runLoop.perform {
            held.count()
            released.wait()
        }
        held.wait()
        for number in 0..<300 {
            Task(executorPreference: thread.executor) {
                await Task.yield()
                trace("\(number)")
            }
        }
        thread.runLoop.perform { thread.stop() }
        released.count()
        thread.stop()
        #expect(trace.all.count == 300)
    }

    @Test func `a scoped thread ends with its scope, also by an error`() async throws {
        struct Failure: Error {}
        let freed = Shared(false)
        await #expect(throws: Failure.self) {
            try await withRunLoopThread(name: "scoped") { thread in
                let canary = AtEnd { freed.value = true }
                synchronously {
                    _ = thread.runLoop.performAndWait {
                        RunLoop.current.perform(after: .seconds(3600)) { withExtendedLifetime(canary) {} }
                    }
                }
                throw Failure()
            }
        }
        #expect(freed.value)
        #expect(try await withRunLoopThread(name: "scoped") { _ in 42 } == 42)
    }

    @Test func `a thread that resumes a task may be the last to know the task's loop`() async throws {
        for _ in 0..<200 {
            let waiter = Shared<CheckedContinuation<Void, Never>?>(nil)
            _ = try JoinableThread { waiter.wait { $0 }.resume() }
            try await withRunLoopThread(name: "resumed") { thread in
                await Task(executorPreference: thread.executor) {
                    await withCheckedContinuation { waiter.value = $0 }
                }.value
            }
        }
    }

    // MARK: Waits

    @Test(arguments: LoopWait.all)
    func `stopping a thread ends the waits of its tasks, and lets the tasks finish there`(wait: LoopWait)
        async throws
    {
        let (thread, feed) = (try RunLoopThread(name: "ending"), try TestPipe("abc"))
        let task = Task(executorPreference: thread.executor) {
            trace(await wait.result(on: thread.runLoop, feed))
            await Task.yield()
            trace(thread.runLoop.isCurrent ? "on the thread" : "elsewhere")
        }
        // Until the task waits, and its loop has nothing else to do.
        for _ in 0..<10 { synchronously { thread.runLoop.performAndWait {} } }
        thread.untilAsleep()
        await thread.shutDown()
        await task.value
        #expect(trace.all == [wait.expectedEnd, "on the thread"])
    }

    @Test(arguments: LoopWait.ofLoops)
    func `a wait that has begun on a loop that never runs ends with the loop's thread`(wait: LoopWait)
        async throws
    {
        let (loop, isOver) = (Answer<RunLoop>(), Countdown(1))
        let thread = try JoinableThread {
            loop.give(.current)
            isOver.wait()
        }
        let (runLoop, feed) = (loop.wait(), try TestPipe())
        let task = Task { await wait.result(on: runLoop, feed) }
        // Probably enough for the task to begin. Its wait must end in any case.
        for _ in 0..<1000 { await Task.yield() }
        isOver.count()
        #expect(await task.value == wait.expectedEnd)
        thread.join()
        #expect(await wait.result(on: runLoop, feed) == wait.expectedEnd)
    }

    @Test func `a task that waits again, or for the first time, after its loop has ended is cancelled`()
        async throws
    {
        let (thread, feed) = (try RunLoopThread(name: "ended"), try TestPipe())
        await thread.shutDown()
        await Task(executorPreference: thread.executor) {
            let input = feed.makeInput()
            for _ in 0..<2 {
                let error = await thrownError { _ = try await input.readChunk() }
                #expect(error is CancellationError)
            }
            let error = await thrownError { try await thread.runLoop.clock().sleep(for: .seconds(3600)) }
            #expect(error is CancellationError)
        }.value
    }

    // MARK: Late jobs

    @Test(arguments: [true, false])
    func `jobs that come after the loop's end run one at a time, isolated to its actors`(isOwnThread: Bool)
        async throws
    {
        let ended = Shared<RunLoop?>(nil)
        if isOwnThread {
            try onAThread { ended.value = RunLoop.current }
        } else {
            let thread = try RunLoopThread(name: "ended")
            ended.value = thread.runLoop
            await thread.shutDown()
        }
        let loop = ended.value!
        let (first, second) = (Tally(loop.executor()), Tally(loop.executor(inModes: [.custom])))
        await withTaskGroup { group in
            for number in 0..<200 {
                let (tally, other) = number % 2 == 0 ? (first, second) : (second, first)
                group.addTask { await tally.add(to: other) }
            }
        }
        #expect(await (first.total, second.total) == (200, 200))
    }

    @Test func `the first job that comes after a loop's end is reported in debug mode`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            let thread = try RunLoopThread(name: "ended")
            await thread.shutDown()
            for _ in 0..<3 { await Task(executorPreference: thread.executor) {}.value }
            #expect(reports.value.map(\.kind) == ["lateJob"])
            #expect(reports.value.first?.text.contains("'ended'") == true)
        }
    }

    @Test func `jobs that wait when a thread ends run there first, also those of other threads`() throws {
        try onAThread {
            let loop = RunLoop.current
            for _ in 0..<2 {
                Task(executorPreference: loop.executor(inModes: [.custom])) {
                    trace("\(loop.isCurrent)")
                    await Task.yield()
                    trace("\(loop.isCurrent)")
                }
            }
            try onAThread { Task(executorPreference: loop.executor()) { trace("\(loop.isCurrent)") } }
        }
        #expect(trace.all == ["true", "true", "true", "true", "true"])
    }

    // MARK: Shutting down

    @Test func `a thread is shut down from one of its tasks, which waits for the others`() async throws {
        let (thread, feed) = (try RunLoopThread(name: "shut down"), try TestPipe())
        let reader = Task(executorPreference: thread.executor) {
            _ = try? await feed.makeInput().readChunk()
            for _ in 0..<100 { await Task.yield() }
            trace("read")
        }
        let isComplete = await Task(executorPreference: thread.executor) {
            let isComplete = await thread.shutDown()
            trace("shut down")
            return isComplete
        }.value
        await reader.value
        #expect(isComplete)
        #expect(trace.all == ["read", "shut down"])
    }

    @Test func `a task that ignores its cancellation outlives the thread's shutdown`() async throws {
        let (thread, mayEnd) = (try RunLoopThread(name: "ignored"), Shared(false))
        let task = Task(executorPreference: thread.executor) {
            while !mayEnd.value { await Task.yield() }
            return thread.runLoop.isCurrent
        }
        #expect(await !thread.shutDown(timeout: .milliseconds(10)))
        mayEnd.value = true
        #expect(await !task.value)
    }

    @Test func `executors and their loop are freed`() throws {
        weak var (executor, loop): (RunLoop.Executor?, RunLoop?)
        do {
            let (thread, isDone) = (try RunLoopThread(name: "freed"), Countdown(1))
            (executor, loop) = (thread.executor, thread.runLoop)
            let resident = Resident(thread.executor)
            Task { await resident.perform { isDone.count() } }
            isDone.wait()
            thread.stop()
        }
        waitUntil { executor == nil && loop == nil }
    }
}

/// What a task of a loop waits for, and how the wait ends with the loop.
enum LoopWait: Sendable {
    case stream, lines, handoff, clock, datagram
    case events(EventKind)

    /// Those that any loop serves, also for a task elsewhere.
    static let ofLoops = [.datagram] + EventKind.allCases.map { events($0) }
    static let all = [stream, lines, handoff, clock] + ofLoops

    /// Waits on `loop`, where nothing comes, and returns how that ends.
    nonisolated(nonsending) func result(on loop: RunLoop, _ feed: TestPipe) async -> String {
        do {
            switch self {
            case .stream: for try await _ in feed.makeInput().chunks {}
            case .lines: for try await _ in feed.makeInput().lines {}
            case .handoff:
                _ = try await feed.makeInput().handOff(to: Ignorer(), on: DispatchQueue(label: "ignored"))
            case .clock: try await loop.clock().sleep(for: .seconds(3600))
            case .datagram: _ = try await loop.datagrams(boundTo: .ipv4Loopback(port: 0)).receive()
            case .events(let kind):
                if try await EventFixture(kind, on: loop, isIdle: true).next() { return "an event" }
            }
            return "ended"
        } catch { return error.errno.map { "\($0)" } ?? "\(type(of: error))" }
    }

    /// `Reactor.docc/Concurrency.md` has a table of these.
    var expectedEnd: String {
        switch self {
        case .stream, .lines, .clock: "CancellationError"
        case .datagram: "\(Errno.badFileDescriptor)"
        case .handoff: "\(Errno.canceled)"
        case .events: "ended"
        }
    }
}

private struct Ignorer: ChunkProcessor {
    let output = 0

    func process(_ chunk: RawSpan) {}
}

/// An actor whose calls overlap if they are not isolated to its loop.
private actor Tally {
    private let executor: RunLoop.Executor
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }
    private(set) var total = 0

    init(_ executor: RunLoop.Executor) { self.executor = executor }

    /// Adds to this actor's total, and as the other's code does to that one's.
    func add(to other: Tally) {
        preconditionIsolated()
        total += 1
        other.assumeIsolated { $0.total += 1 }
    }
}
