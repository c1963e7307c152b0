import Outcome
import Reactor

/// The promise was kept. Ends the program when what the workload has closed had time to end.
func finish(_ result: String) {
    mark(begins: false)
    Timer.scheduled(after: .milliseconds(100), forMode: .common) { _ in right(result) }
}

func attempt(_ body: () throws -> Void) {
    do { try body() } catch { reported(error) }
}

/// Runs the main loop until a task with the workload has ended.
func run(_ body: @escaping @MainActor @Sendable () async throws -> String) {
    attempt { finish(try RunLoop.main.run { () async throws in try await body() }) }
}
