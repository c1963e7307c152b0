public import Testing

/// Runs each test on its own thread with a run loop, and fails a test that exceeds its time limit.
///
/// ```swift
/// @Suite(.runLoop(timeLimit: .seconds(5))) struct TimerTests {
///     @Test func `a timer fires`() {
///         var hasFired = false
///         Timer.scheduled(after: .milliseconds(1)) { _ in hasFired = true }
///         while !hasFired, RunLoop.current.run(mode: .default, before: .distantFuture) {}
///         #expect(hasFired)
///     }
/// }
/// ```
///
/// A synchronous test may block its thread: no other test waits for it. While an asynchronous test awaits something, its thread
/// runs the loop in the default mode, so timers that it has scheduled fire. A test that is isolated to an actor
/// stays there; the library serves the main loop while a `@MainActor` test awaits.
///
/// When a test has run for the limit, it fails with its loop's explanation (`RunLoop.explain()`), its task is cancelled, and
/// the loop of its thread is stopped. A test that ignores both ends the process once no other test with this trait has been
/// running for five seconds, so that a run always ends.
///
/// At most four tests for each processor run at once, or eight if that is more; under a sanitizer one for each processor, or
/// three if that is more. The time of those that wait for their turn does not count. On a machine whose processors are busy the
/// limit is up to five times as long: the time in which threads wait for one (`/proc/pressure/cpu`) does not count either. It
/// is three times as long under a sanitizer, and REACTOR_TESTING_PATIENCE in the environment multiplies it. On a test inside a
/// suite with this trait, the test's own limit counts. With REACTOR_TESTING_PROGRESS=10 in the environment, standard output
/// gets a line every ten seconds: how many test cases have ended, and which one has been running for the longest time.
public struct RunLoopTrait: SuiteTrait, TestTrait, TestScoping {
    /// How long a test may run.
    public let timeLimit: Duration

    /// True: a suite's trait applies to each of its tests.
    public var isRecursive: Bool { true }

    /// Runs `function` on its own thread, and records an issue when it exceeds the limit.
    public func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        if let scope = TestScope.current {
            scope.setTimeLimit(timeLimit)
            return try await function()
        }
        let scope = TestScope(name: test.displayName ?? test.name)
        try await TestScope.$current.withValue(scope) {
            try await scope.run(timeLimit: timeLimit, function)
        }
    }
}

extension Trait where Self == RunLoopTrait {
    /// Runs each test on its own thread with a run loop, and fails a test that runs for longer than ten seconds.
    public static var runLoop: Self { runLoop(timeLimit: .seconds(10)) }

    /// Runs each test on its own thread with a run loop, and fails a test that runs for longer than `timeLimit`.
    public static func runLoop(timeLimit: Duration) -> Self { Self(timeLimit: timeLimit) }
}
