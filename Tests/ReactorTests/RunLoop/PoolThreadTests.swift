import Dispatch
import Reactor
import ReactorTesting
import Testing

/// What a program hears that schedules on a loop of a thread pool, which nothing runs.
@Suite(.runLoop) struct PoolThreadTests {
    @Test func `in debug mode a loop of a pool's thread is reported`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            await onQueue { Timer.scheduled(after: .zero) { _ in } }
        }
        #expect(result.lines.count == 1, "\(result.lines)")
        #expect(result.message.contains("The run loop of thread "))
        #expect(result.message.contains("use RunLoop.main, or the loop of a RunLoopThread"))
    }

    @Test func `without debug mode nothing is reported`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            await onQueue { RunLoop.current.perform {} }
        }
        #expect(result.message.isEmpty)
    }

    @Test func `in debug mode the loop of a thread of the program is not reported`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            LoopDiagnostics.isDebugging = true
            try await onItsOwnThread {
                RunLoop.current.perform {}
                RunLoop.current.poll()
            }
            let thread = try RunLoopThread(name: "network")
            thread.runLoop.performAndWait {}
            await MainActor.run { RunLoop.main.perform(inModes: [.common]) {} }
        }
        #expect(!result.message.contains("pool"))
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
