import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct ExecutorEndTests {
    @Test func `a thread that is stopped runs the jobs that are queued`() async throws {
        let trace = Trace()
        try await onItsOwnThread {
            let thread = try RunLoopThread(name: "stopped")
            let (isHeld, release) = (Answer<Void>(), Answer<Void>())
            thread.runLoop.perform {
                isHeld.give(())
                release.wait()
            }
            isHeld.wait()
            for number in 0..<300 {
                Task(executorPreference: thread.executor) {
                    await Task.yield()
                    trace("\(number)")
                }
            }
            thread.runLoop.perform { thread.stop() }
            release.give(())
            thread.stop()
        }
        #expect(trace.all.count == 300)
    }

    @Test func `a scoped thread ends with its scope, also by an error`() async throws {
        struct Failure: Error {}
        let freed = Shared(false)
        await #expect(throws: Failure.self) {
            try await withRunLoopThread(name: "scoped") { thread in
                let canary = AtEnd { freed.value = true }
                _ = thread.runLoop.performAndWait {
                    RunLoop.current.perform(after: .seconds(3600)) { withExtendedLifetime(canary) {} }
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

    @Test(arguments: LoopWait.allCases)
    func `stopping a thread ends the waits of its tasks, and lets the tasks finish there`(
        wait: LoopWait
    ) async throws {
        let trace = Trace()
        let thread = try RunLoopThread(name: "ending")
        let feed = try Feed("abc")
        let task = Task(executorPreference: thread.executor) {
            do { trace(try await wait.result(on: thread.runLoop, feed)) } catch {
                trace("\(error.errno.map { "\($0)" } ?? "\(type(of: error))")")
            }
            await Task.yield()
            trace(thread.runLoop.isCurrent ? "on the thread" : "elsewhere")
        }
        try await onItsOwnThread {
            wait.untilUnderWay(on: thread)
            thread.stop()
        }
        await task.value
        #expect(trace.all == [wait.expectedEnd, "on the thread"])
    }

    @Test(arguments: [LoopWait.connection, .datagram, .datagrams, .readiness, .ticks])
    func `a wait that has begun on a loop that never runs ends with the loop's thread`(wait: LoopWait)
        async throws
    {
        let (trace, loop, isOver) = (Trace(), Answer<RunLoop>(), Answer<Bool>())
        let thread = try JoinableThread {
            loop.give(.current)
            _ = isOver.wait()
        }
        let (runLoop, feed) = (try await onItsOwnThread { loop.wait() }, try Feed())
        let task = Task {
            do { trace(try await wait.result(on: runLoop, feed)) } catch { trace("\(error.errno!)") }
        }
        // Probably enough for the task to begin. Its wait must end in any case.
        for _ in 0..<1000 { await Task.yield() }
        isOver.give(true)
        await task.value
        #expect(trace.all == [wait.expectedEnd])
        try await onItsOwnThread { thread.join() }
    }

    @Test func `a task that waits again, or for the first time, after its loop has ended is cancelled`()
        async throws
    {
        let trace = Trace()
        let thread = try RunLoopThread(name: "ended")
        try await onItsOwnThread { thread.stop() }
        let feed = try Feed()
        await Task(executorPreference: thread.executor) {
            let input = feed.makeStream()
            for _ in 0..<2 {
                let error = await thrownError { _ = try await input.readChunk() }
                trace("\(error is CancellationError)")
            }
            let error = await thrownError { try await thread.runLoop.clock().sleep(for: .seconds(3600)) }
            trace("\(error is CancellationError)")
        }.value
        #expect(trace.all == ["true", "true", "true"])
    }

    @Test(arguments: [true, false])
    func `jobs that come after the loop's end run one at a time, isolated to its actors`(isOwnThread: Bool)
        async throws
    {
        let loop = try await onItsOwnThread {
            let loop = Shared<RunLoop?>(nil)
            if isOwnThread {
                try onAThread { loop.value = RunLoop.current }
            } else {
                let thread = try RunLoopThread(name: "ended")
                loop.value = thread.runLoop
                thread.stop()
            }
            return loop.value!
        }
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
            #expect(reports.value.map(\.kind) == [.lateJob])
            #expect(reports.value.first?.text.contains("thread 'ended'") == true)
        }
    }

    @Test func `jobs that wait when a thread ends run there first, also those of other threads`() async throws
    {
        let trace = Trace()
        try await onItsOwnThread {
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
        }
        #expect(trace.all == ["true", "true", "true", "true", "true"])
    }

    @Test func `a thread is shut down from one of its tasks, which waits for the others`() async throws {
        let trace = Trace()
        let thread = try RunLoopThread(name: "shut down")
        let feed = try Feed()
        let reader = Task(executorPreference: thread.executor) {
            _ = try? await feed.makeStream().readChunk()
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
        let thread = try RunLoopThread(name: "ignored")
        let mayEnd = Shared(false)
        let task = Task(executorPreference: thread.executor) {
            while !mayEnd.value { await Task.yield() }
            return thread.runLoop.isCurrent
        }
        #expect(await !thread.shutDown(timeout: .milliseconds(10)))
        mayEnd.value = true
        #expect(await !task.value)
    }

    @Test func `executors and their loop are freed`() async throws {
        let fates = try await onItsOwnThread {
            let thread = try RunLoopThread(name: "freed")
            let fates = WeakExecutor(thread)
            let isDone = Answer<Void>()
            let resident = Resident(thread.executor)
            Task {
                await resident.note("called")
                isDone.give(())
            }
            isDone.wait()
            thread.stop()
            return fates
        }
        waitUntil { fates.isFreed }
    }
}

private struct WeakExecutor: Sendable {
    weak let executor: RunLoop.Executor?
    weak let loop: RunLoop?

    init(_ thread: RunLoopThread) {
        executor = thread.executor
        loop = thread.runLoop
    }

    var isFreed: Bool { executor == nil && loop == nil }
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
