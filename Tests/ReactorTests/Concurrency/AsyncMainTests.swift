import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct AsyncMainTests {
    @Test func `top-level code that awaits stays on the main thread, and its loop is served`() async throws {
        let places = ["yield", "sleep", "a detached task", "a timer", "the main queue", "stop"]
        let lines = try await probeMainLoop("stays", of: "async-main-probe")
        #expect(lines == ["at first true"] + places.map { "after \($0) true true true" } + ["over"])
    }

    @Test func `a program may keep its main thread from the loop`() async throws {
        #expect(try await probeMainLoop("leaves", of: "async-main-probe") == ["true", "over"])
    }

    @Test func `the main actor is isolated in every callback of the main loop`() async throws {
        let lines = try await probeMainLoop("main actor in callbacks")
        let callbacks = ["block", "descriptor", "job", "observer", "observer", "source", "stream", "timer"]
        #expect(lines.sorted() == callbacks)
    }

    @Test func `a synchronous main runs asynchronous work on the main loop, and gets its result or error`()
        async throws
    {
        let lines = try await probeMainLoop("asynchronous work")
        #expect(lines == ["on main: true", "preferred: true", "set 42", "typed"])
    }

    @Test func `a result ends the activation that waits for it, and none that is nested in it`() async throws
    {
        let lines = try await probeMainLoop("asynchronous work and a nested run")
        #expect(lines == ["result"] + [String](repeating: "nested timedOut", count: 3) + ["over"])
    }

    @Test func `a signal cancels asynchronous work, and has its own action back after that`() async throws {
        let lines = try await probeMainLoop("cancelled by a signal")
        #expect(lines == ["cancelled true", "ended with signal(15)"])
    }

    @Test func `a thread runs asynchronous work on its own loop`() {
        let loop = RunLoop.current
        let places = loop.run {
            let before = loop.isCurrent
            await Task.yield()
            return [before, loop.isCurrent]
        }
        #expect(places == [true, true])
    }

    @Test func `a result that comes in a nested run of another mode stops no later run`() {
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
        loop.hold(.default)
        #expect(loop.run(in: .default, until: .now + .milliseconds(1)) == .timedOut)
    }

    @Test func `asynchronous work is not run from another thread`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let thread = try RunLoopThread(name: "home")
            try onAThread { thread.runLoop.run {} }
        }
        #expect(result.message.contains("run loop"))
    }
}
