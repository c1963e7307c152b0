import Reactor
import Testing

@Suite struct ExecutorEndTests {
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

    @Test func `a loop that ends with jobs queued traps and names the loop`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                for _ in 0..<3 { Task(executorPreference: RunLoop.current.executor()) {} }
            }
        }
        #expect(result.message.contains("has ended with 3 jobs queued"))
    }

    @Test func `a loop that ends with jobs of other threads traps and names the loop`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let loop = RunLoop.current
                try? onAThread { for _ in 0..<2 { Task(executorPreference: loop.executor()) {} } }
            }
        }
        #expect(result.message.contains("has ended with 2 jobs queued"))
    }

    @Test func `a job that comes after the loop's end traps and names the loop`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "ended")
            try onAThread { thread.stop() }
            Task(executorPreference: thread.executor) {}
        }
        #expect(result.message.contains("whose thread has ended"))
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
