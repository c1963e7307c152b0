import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// The main loop, in programs with a synchronous main.
@Suite(.runLoop) struct MainLoopTests {
    private static let probes = [
        Probe(
            "a program on this library alone does not load Foundation", "what is loaded",
            ["libFoundation false", "libevent true", "libdispatch true"]),
        Probe(
            "a drain of the main queue runs what the queue held when it began, and ends run before a date",
            "a drain ends an activation",
            ["a", "b", "true", "posted by a", "true", "while asleep", "handledSource"]),
        Probe(
            "the main queue is served in the common modes only", "only common modes drain",
            ["custom", "block"]),
        Probe(
            "nested in a main-queue block, timers fire, blocks wait, and nothing is left to run for",
            "nested in a drain",
            [
                "empty: false", "timer", "with a timer: true", "with a common source: true",
                "outer has ended", "inner block",
            ]),
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
            "a descriptor that the kernel refuses to a mode does not keep the others from it",
            "a refused descriptor", ["served", "handledSource", "later true", "handledSource"]),
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

/// What a loop does where the process may open few descriptors more, or none.
@Suite(.runLoop) struct DescriptorLimitTests {
    @Test
    func `a loop made with few descriptors left serves timers and blocks, and descriptors as soon as it can`()
        async throws
    {
        let lines = try await probeMainLoop("few descriptors")
        #expect(lines.count == 10)
        for (spare, line) in lines.enumerated() {
            let served = "\(spare) block timer finished"
            #expect(["\(served) refused finished", "\(served) finished"].contains(line))
        }
        #expect(lines.first?.contains("refused") == true && lines.last?.contains("refused") == false)
    }

    @Test func `a loop without descriptors delivers the events that need none`() async throws {
        let lines = try await probeMainLoop("streams with few descriptors")
        let events = ["endEncountered", "errorOccurred", "hasBytesAvailable", "openCompleted"]
        for (spare, line) in lines.enumerated() {
            #expect(line == "\(spare) \(events[0]) \(events.joined(separator: " ")) \(events[3])")
        }
        #expect(lines.count == 6)
    }

    @Test(arguments: 0...8)
    func `the main queue is served as soon as descriptors are free`(spare: Int) async throws {
        #expect(try await probeMainLoop("a late main queue", ["\(spare)"]) == ["timer", "block", "stopped"])
    }

    @Test func `the main queue is served though the kernel refuses what the loop waits with`() async throws {
        #expect(try await probeMainLoop("an unwatched main queue") == ["1", "2", "stopped"])
    }

    @Test func `a main queue without a descriptor, and a worker without a thread, are told`() async throws {
        let lines = try await probeMainLoop("a missing main queue")
        #expect(lines.count { $0.contains("Too many open files") } == 1 && lines.last == "stopped")
        let worker = try await probeMainLoop("a missing worker")
        #expect(worker.count == 1 && worker.first?.contains("temporarily unavailable") == true)
    }

    @Test func `a trap of Dispatch, which has got no descriptor, is explained`() async throws {
        let lines = try await probeMainLoop("a trap of Dispatch")
        #expect(lines.count { $0.contains("libdispatch a descriptor") } == 1)
        #expect(lines.last?.hasPrefix("ended with ") == true)
    }

    @Test(arguments: 0...12)
    func `Dispatch ends no process in which few descriptors are left`(spare: Int) async throws {
        let lines = try await probeMainLoop("first uses of Dispatch", ["\(spare)"])
        try #require(lines.count == 3)
        #expect(lines[0].hasPrefix("resolve localhost: ") || lines[0].contains("127.0.0.1:7"))
        #expect(lines[1] == "flushed")
        #expect(lines[2].hasSuffix(": Too many open files") || lines[2] == "open")
        if spare < 7 { #expect(!lines.contains("open")) }
    }

    @Test(arguments: ["epoll", "timer"])
    func `a file is written though the kernel has no memory for what Dispatch needs`(call: String)
        async throws
    {
        #expect(try await probeMainLoop("refused Dispatch", [call]) == ["flushed"])
    }

    @Test func `iterations of the main actor end though the kernel refuses threads`() async throws {
        #expect(try await probeMainLoop("iterations without threads") == ["datagrams", "signals"])
    }

    /// libevent ends a process in which it gets no descriptors for a base. The leak checker finds the bases that it gives up.
    @Test(.enabled(if: !isSanitized))
    func `a loop that another thread leaves no descriptors is refused them, and the process lives`()
        async
    {
        await #expect(processExitsWith: .success) {
            let (hasEnded, taken) = (Shared(false), Countdown(1))
            var limit = rlimit(rlim_cur: 1024, rlim_max: 1024)
            try #require(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
            let other = try JoinableThread {
                var own: [CInt] = []
                func take() { while case let number = dup(0), number >= 0 { own.append(number) } }
                take()
                taken.count()
                // Frees and takes what a base needs.
                while !hasEnded.value {
                    for _ in 0..<8 { close(own.removeLast()) }
                    take()
                }
                for number in own { close(number) }
            }
            taken.wait()
            for _ in 0..<200 {
                try onAThread {
                    Timer.scheduled(after: .zero) { _ in }
                    _ = RunLoop.current.run(in: .default)
                }
            }
            hasEnded.value = true
            other.join()
        }
    }

    @Test func `a mode beyond the first costs a loop three descriptors`() async throws {
        // The main queue's, and those of the loop's first mode.
        #expect(try await probeMainLoop("descriptors of modes") == ["6 3"])
    }
}
