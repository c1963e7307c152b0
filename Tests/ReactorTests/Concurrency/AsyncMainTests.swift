import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct AsyncMainTests {
    @Test func `top-level code that awaits stays on the main thread, and its loop is served`() async throws {
        let lines = try await probeMainLoop("stays", of: "async-main-probe")
        #expect(
            lines == [
                "at first true", "after yield true true true", "after sleep true true true",
                "from a detached task true true true", "after a timer true true true",
                "after the main queue true true true", "after stop true true true", "over",
            ])
    }

    @Test func `a program may keep its main thread from the loop`() async throws {
        #expect(try await probeMainLoop("leaves", of: "async-main-probe") == ["true", "over"])
    }

    @Test @MainActor func `a main-actor test runs on the main loop, which is served`() async throws {
        #expect(RunLoop.main.isCurrent)
        #expect(RunLoop.main.currentMode == .default)
        await withCheckedContinuation { continuation in
            RunLoop.main.perform { continuation.resume() }
        }
        #expect(RunLoop.main.isCurrent)
    }

    @Test func `the main actor is isolated in every callback of the main loop`() async throws {
        let lines = try await probeMainLoop("main actor in callbacks")
        #expect(
            lines.sorted() == [
                "block", "descriptor", "job", "observer", "observer", "source", "stream", "timer",
            ])
    }

    @Test func `a synchronous main runs asynchronous work on the main loop, and gets its result or error`()
        async throws
    {
        #expect(
            try await probeMainLoop("asynchronous work") == [
                "on main: true", "preferred: true", "set 42", "typed",
            ])
    }

    @Test func `a result ends the activation that waits for it, and none that is nested in it`() async throws
    {
        #expect(
            try await probeMainLoop("asynchronous work and a nested run") == [
                "result", "nested timedOut", "nested timedOut", "nested timedOut", "over",
            ])
    }

    @Test func `a signal cancels asynchronous work, and has its own action back after that`() async throws {
        #expect(
            try await probeMainLoop("cancelled by a signal") == ["cancelled true", "ended with status 15"])
    }

    @Test func `a thread runs asynchronous work on its own loop`() async throws {
        let places = try await onItsOwnThread {
            let loop = RunLoop.current
            return loop.run {
                var places = [loop.isCurrent]
                await Task.yield()
                places.append(loop.isCurrent)
                return places
            }
        }
        #expect(places == [true, true])
    }

    @Test func `a result that comes in a nested run of another mode stops no later run`() async throws {
        let result = try await onItsOwnThread {
            let loop = RunLoop.current
            loop.run {
                let (isNested, isReturning) = (Shared(false), Shared(false))
                loop.perform {
                    isNested.value = true
                    while !isReturning.value { loop.run(in: .tracking, until: .now + .milliseconds(1)) }
                    loop.stop()
                }
                while !isNested.value { await Task.yield() }
                isReturning.value = true
            }
            let timer = Timer(interval: .seconds(3600)) { _ in }
            loop.add(timer, forMode: .default)
            defer { timer.invalidate() }
            return loop.run(in: .default, until: .now + .milliseconds(1))
        }
        #expect(result == .timedOut)
    }

    @Test func `asynchronous work is not run from another thread`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "home")
            try onAThread { thread.runLoop.run {} }
        }
        #expect(result.message.contains("run loop"))
    }
}
