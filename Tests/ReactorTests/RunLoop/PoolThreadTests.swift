import Dispatch
import Glibc
import Reactor
import Testing

/// What a program hears that schedules on a loop of a thread pool, which nothing runs.
@Suite struct PoolThreadTests {
    @Test func `in debug mode a loop of a pool's thread is reported`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            setenv("REACTOR_DEBUG", "1", 1)
            await onQueue { RunLoop.current.perform {} }
        }
        #expect(result.message.contains("RunLoop.current was used on thread"))
        #expect(result.message.contains("use RunLoop.main, or the loop of a RunLoopThread"))
    }

    @Test func `without debug mode nothing is reported`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            unsetenv("REACTOR_DEBUG")
            await onQueue { RunLoop.current.perform {} }
        }
        #expect(result.message.isEmpty)
    }

    @Test func `in debug mode the loop of a thread of the program is not reported`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            setenv("REACTOR_DEBUG", "1", 1)
            try await onItsOwnThread { RunLoop.current.perform {} }
            let thread = try RunLoopThread(name: "network")
            thread.runLoop.performAndWait {}
            await MainActor.run { RunLoop.main.perform {} }
        }
        #expect(result.message.isEmpty)
    }
}

/// Calls `body` on a worker of Dispatch.
private func onQueue(_ body: @escaping @Sendable () -> Void) async {
    await withCheckedContinuation { continuation in
        DispatchQueue.global().async {
            body()
            continuation.resume()
        }
    }
}
