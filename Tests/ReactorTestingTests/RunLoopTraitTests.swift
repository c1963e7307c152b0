import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct RunLoopTraitTests {
    @Test func `a test runs on a thread of its own`() throws {
        #expect(RunLoop.current !== RunLoop.main)
        #expect(RunLoop.current.currentMode == nil)
    }

    @Test func `while a test awaits something its thread runs the loop`() async {
        let loop = currentLoop()
        await withCheckedContinuation { continuation in
            loop.add(Timer(fireDate: .now) { _ in continuation.resume() }, forMode: .default)
        }
        #expect(currentLoop() === loop)
    }

    @Test func `a handler that runs the loop does not keep the test's tasks waiting`() async {
        let timer = Timer.scheduled(every: .microseconds(100)) { _ in
            RunLoop.current.run(in: .default, until: .now + .milliseconds(1))
        }
        for _ in 0..<50 { await Task.detached { _ = usleep(500) }.value }
        timer.invalidate()
    }

    @Test @MainActor func `the main loop is served while a test on the main actor awaits something`() async {
        await withCheckedContinuation { continuation in
            Timer.scheduled(after: .zero) { _ in continuation.resume() }
        }
        #expect(currentLoop() === RunLoop.main)
    }
}

@Suite struct HangingTestTests {
    @Test(
        .expectsIssue("waiting in default", "mode tracking", "timer 'answer': in"),
        .runLoop(timeLimit: .milliseconds(100)))
    func `a test that runs its loop in vain fails with what the loop says and has`() {
        Timer.scheduled(after: .seconds(3600), label: "question") { _ in }
        Timer.scheduled(after: .seconds(3600), forMode: .tracking, label: "answer") { _ in }
        RunLoop.current.run(in: .default)
    }

    @Test(.expectsIssue("a call that does not run its loop"), .runLoop(timeLimit: .milliseconds(100)))
    func `a test that does not run its loop fails with that`() {
        while !Task.isCancelled { usleep(1_000) }
    }

    @Test(.expectsIssue("exceeded its time limit"), .runLoop(timeLimit: .milliseconds(100)))
    func `a simulation that the time limit ends is no failure of its seed`() {
        simulate(seeds: 2) { world in
            let hold = world.time.hold()
            var hasFired = false
            Timer.scheduled(after: .seconds(3600)) { _ in hasFired = true }
            world.time.advance(by: .seconds(3600))
            #expect(hasFired)
            hold.end()
        }
    }

    @Test(.expectsIssue("exceeded its time limit"), .runLoop(timeLimit: .milliseconds(100)))
    func `a task that waits in vain is cancelled`() async {
        let never = AsyncStream<Void> { _ in }
        for await _ in never {}
    }
}

private func currentLoop() -> RunLoop { .current }

/// Expects the test to record an issue that contains all of some texts.
private struct ExpectsIssue: TestTrait, TestScoping {
    let texts: [String]

    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await withKnownIssue {
            try await function()
        } matching: { issue in
            issue.comments.contains { comment in texts.allSatisfy { "\(comment)".contains($0) } }
        }
    }
}

extension Trait where Self == ExpectsIssue {
    fileprivate static func expectsIssue(_ texts: String...) -> Self { Self(texts: texts) }
}
