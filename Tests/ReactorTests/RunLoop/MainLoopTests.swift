import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct MainLoopTests {
    @Test func `a program on this library alone does not load Foundation`() async throws {
        let lines = try await probeMainLoop("what is loaded")
        #expect(lines == ["libFoundation false", "libevent true", "libdispatch true"])
    }

    @Test func `draining the main queue ends run before a date`() async throws {
        let lines = try await probeMainLoop("a drain ends an activation")
        #expect(lines == ["before the first run", "true", "while asleep", "handledSource"])
    }

    @Test func `the main queue is served in the common modes only`() async throws {
        #expect(try await probeMainLoop("only common modes drain") == ["custom", "block"])
    }

    @Test func `a drain runs what the queue held when it began`() async throws {
        #expect(try await probeMainLoop("a drain is a snapshot") == ["a", "b", "first drain", "posted by a"])
    }

    @Test func `nested in a main-queue block, timers fire, blocks wait, and nothing is left to run for`()
        async throws
    {
        #expect(
            try await probeMainLoop("nested in a drain") == [
                "empty: false", "timer", "with a timer: true", "outer has ended", "inner block",
            ])
    }

    @Test func `nested in a timer, the main queue is served`() async throws {
        #expect(try await probeMainLoop("nested in a timer") == ["block", "true"])
    }

    @Test func `the main loop runs main-actor jobs, those after a suspension in later drains`() async throws {
        #expect(try await probeMainLoop("main actor") == ["a", "returned", "b", "c on main: true"])
    }

    @Test func `the main loop's common modes are never empty, others may be`() async throws {
        #expect(try await probeMainLoop("never empty") == ["timedOut", "timedOut", "finished"])
    }

    @Test func `run does not return on the main loop`() async throws {
        #expect(try await probeMainLoop("run never returns") == ["still running"])
    }

    @Test func `the main loop sleeps once the main queue is drained`() async throws {
        #expect(try await probeMainLoop("asleep after a drain") == ["block", "slept"])
    }

    @Test func `a main queue that never ends does not starve timers`() async throws {
        #expect(try await probeMainLoop("a queue that never ends") == ["timer", "stopped"])
    }

    @Test func `other threads add to the main loop and cannot run it`() async throws {
        let lines = try await probeMainLoop("from another thread")
        #expect(lines.first == "false false")
        #expect(lines.sorted() == ["block true", "false false", "timer", "true"])
    }

    @Test func `a loop without descriptors to wait with still serves timers and blocks`() async throws {
        #expect(
            try await probeMainLoop("out of descriptors") == [
                "true", "block", "timer", "finished", "descriptor", "finished",
            ])
    }

    @Test func `a descriptor that the kernel refuses to a mode does not keep the others from it`()
        async throws
    {
        #expect(
            try await probeMainLoop("a refused descriptor") == [
                "served", "handledSource", "later true", "handledSource",
            ])
    }

    @Test func `loops that end leave no descriptors behind`() async throws {
        #expect(try await probeMainLoop("threads leave no descriptors") == ["0"])
    }
}
