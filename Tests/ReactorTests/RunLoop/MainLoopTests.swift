import ReactorTesting
import Testing

/// The main loop, in programs with a synchronous main.
@Suite(.runLoop) struct MainLoopTests {
    private static let probes = [
        Probe(
            "a program on this library alone does not load Foundation", "what is loaded",
            ["libFoundation false", "libevent true", "libdispatch true"]),
        Probe(
            "draining the main queue ends run before a date", "a drain ends an activation",
            ["before the first run", "true", "while asleep", "handledSource"]),
        Probe(
            "the main queue is served in the common modes only", "only common modes drain",
            ["custom", "block"]),
        Probe(
            "a drain runs what the queue held when it began", "a drain is a snapshot",
            ["a", "b", "first drain", "posted by a"]),
        Probe(
            "nested in a main-queue block, timers fire, blocks wait, and nothing is left to run for",
            "nested in a drain",
            ["empty: false", "timer", "with a timer: true", "outer has ended", "inner block"]),
        Probe("nested in a timer, the main queue is served", "nested in a timer", ["block", "true"]),
        Probe(
            "the main loop runs main-actor jobs, those after a suspension in later drains", "main actor",
            ["a", "returned", "b", "c on main: true"]),
        Probe(
            "the main loop's common modes are never empty, others may be", "never empty",
            ["timedOut", "timedOut", "finished"]),
        Probe("run does not return on the main loop", "run never returns", ["still running"]),
        Probe(
            "the main loop sleeps once the main queue is drained", "asleep after a drain", ["block", "slept"]),
        Probe(
            "a main queue that never ends does not starve timers", "a queue that never ends",
            ["timer", "stopped"]),
        Probe(
            "a loop without descriptors to wait with still serves timers and blocks", "out of descriptors",
            ["true", "block", "timer", "finished", "descriptor", "finished"]),
        Probe(
            "a descriptor that the kernel refuses to a mode does not keep the others from it",
            "a refused descriptor", ["served", "handledSource", "later true", "handledSource"]),
        Probe("loops that end leave no descriptors behind", "threads leave no descriptors", ["0"]),
    ]

    @Test(arguments: probes)
    func `the main loop is as it must be in a program of its own`(probe: Probe) async throws {
        try await probe.run()
    }

    @Test func `other threads add to the main loop and cannot run it`() async throws {
        let lines = try await probeMainLoop("from another thread")
        #expect(lines.first == "false false")
        #expect(lines.sorted() == ["block true", "false false", "timer", "true"])
    }
}
