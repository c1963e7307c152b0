import Dispatch
import Reactor
import ReactorTesting
import Testing

/// The report about a loop of a thread pool, which nothing runs.
@Suite(.runLoop) struct PoolThreadTests {
    @Test func `in debug mode a loop of a pool's thread is reported, and no other thread's`() async {
        await #expect(processExitsWith: .success) {
            let reports = debuggedReports()
            // A program's thread is no pool's, whatever its name.
            try JoinableThread(name: "qos-probe") {
                RunLoop.current.perform {}
                RunLoop.current.poll()
            }.join()
            let thread = try RunLoopThread(name: "network")
            thread.runLoop.performAndWait {}
            await MainActor.run { RunLoop.main.perform(inModes: [.common]) {} }
            #expect(reports.value.isEmpty, "\(reports.value)")
            DispatchQueue.global().async { Timer.scheduled(after: .zero) { _ in } }
            #expect(reports.wait { $0.first }.kind == .runLoopOnPoolThread)
        }
    }
}
