import Glibc
import Reactor
import Testing

/// One test, or one case of it, while it runs.
final class TestScope: Sendable {
    /// The scope of the test that the current task belongs to.
    @TaskLocal static var current: TestScope?

    private let name: String
    private let thread: TestThread
    private let state = Mutex(State())

    private struct State {
        var alarm: Timer?
        /// Whether the test ended in time; nil while it runs.
        var endedInTime: Bool?
        var waiting: CheckedContinuation<Bool, Never>?
    }

    init(name: String) {
        self.name = name
        thread = TestThread(name: name)
    }

    /// Runs `function`, which is a test, in its turn and for at most `limit`.
    func run(limit: Duration, _ function: @Sendable () async throws -> Void) async throws {
        await Turns.shared.take()
        setLimit(limit)
        do {
            try await runUntilLimit(function)
            Turns.shared.give(name)
        } catch {
            Turns.shared.give(name)
            throw error
        }
    }

    private func runUntilLimit(_ function: @Sendable () async throws -> Void) async throws {
        async let outcome: Void = perform(function)
        guard await endsInTime() else {
            Issue.record("This test has not ended within its limit. \(explanation)")
            Turns.shared.noteHanging(name)
            thread.runLoop?.stop()
            return  // This cancels the test, and waits for it.
        }
        try await outcome
    }

    /// Counts `limit` from now, instead of the limit that was set before.
    func setLimit(_ limit: Duration) {
        let date = Deadline.now + limit * (isSanitized ? 3 : 1)
        let alarm = Timer(fireDate: date) { [weak self] _ in self?.end(inTime: false) }
        let previous = state.withLock { state in
            defer { state.alarm = alarm }
            return state.alarm
        }
        previous?.invalidate()
        Turns.shared.loop.add(alarm, forMode: .common)
    }

    private func perform(_ function: @Sendable () async throws -> Void) async throws {
        defer {
            thread.end()
            end(inTime: true)
        }
        try await withTaskExecutorPreference(thread) { try await function() }
    }

    private func endsInTime() async -> Bool {
        await withCheckedContinuation { continuation in
            let result = state.withLock { state in
                if state.endedInTime == nil { state.waiting = continuation }
                return state.endedInTime
            }
            if let result { continuation.resume(returning: result) }
        }
    }

    private func end(inTime: Bool) {
        let (alarm, waiting) = state.withLock { state in
            if state.endedInTime == nil { state.endedInTime = inTime }
            defer { (state.alarm, state.waiting) = (nil, nil) }
            return (state.alarm, state.waiting)
        }
        alarm?.invalidate()
        waiting?.resume(returning: inTime)
    }

    /// What the loops that the test may be waiting for say about themselves.
    private var explanation: String {
        let main = RunLoop.main.currentMode == nil ? nil : RunLoop.main
        return [thread.runLoop, main].compactMap { $0?.explain() }.joined(separator: " ")
    }
}

/// Whether the process runs under a sanitizer, which makes it several times slower.
private let isSanitized = unsafe dlsym(nil, "__tsan_init") != nil || dlsym(nil, "__asan_init") != nil
