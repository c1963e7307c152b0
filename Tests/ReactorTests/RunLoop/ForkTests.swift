import ReactorTesting
import Testing

/// What becomes of loops and signals in a child of fork(2), and what the child does to its parent: nothing.
@Suite(.runLoop) struct ForkTests {
    @Test func `a child that uses a loop of its parent is refused, and the parent loses nothing`()
        async throws
    {
        let refused = [
            "run", "run before", "current", "schedule", "add a timer", "add a source", "cancel", "interest",
            "perform", "perform and wait", "wake", "stop", "stop a thread",
        ]
        let harmless = ["invalidate", "ask", "explain", "end the thread", "nothing"]
        #expect(
            try await probeMainLoop("loops in a child")
                == refused.map { "\($0): refused" } + harmless.map { "\($0): exit" } + [
                    "served", "true woken",
                ])
    }

    @Test func `a handler that forks and returns in the child continues in the parent only`() async throws {
        #expect(try await probeMainLoop("fork in a handler") == ["refused 2"])
    }

    @Test
    func
        `in a child process signals have their earlier actions, and are not delivered to the parent's sources`()
        async throws
    {
        #expect(
            try await probeMainLoop("signals in a child") == [
                "ignored: exit", "deadly: signal 15", "in the parent: 0", "caught: 2",
            ])
    }

    @Test func `a thread without a loop that forks may have one in the child`() async throws {
        #expect(
            try await probeMainLoop("a fresh loop in a child") == [
                "timer true", "signals: 1", "finished", "exit", "in the parent: -1",
            ])
    }

    @Test func `a child has no main loop if its parent had one, but its other threads have loops`()
        async throws
    {
        #expect(
            try await probeMainLoop("a fork on another thread") == ["current: refused", "a new thread: exit"])
    }

    @Test
    func `a child that closes a stream of its parent sends none of its bytes, and does not wait for them`()
        async throws
    {
        #expect(
            try await probeMainLoop("a parent's streams in a child") == [
                "written: -1", "closed: exit", "everything: true",
            ])
    }

    @Test func `a child that closes a file of its parent does not wait for the parent's worker`() async throws
    {
        #expect(
            try await probeMainLoop("a parent's file in a child") == ["closed: exit", "everything: true"])
    }

    @Test func `a child that closes a stream that a thread of its parent reads closes the descriptor`()
        async throws
    {
        #expect(try await probeMainLoop("a stream that the parent reads in a child") == ["closed: exit"])
    }

    @Test func `a child that closes a socket of its parent leaves the socket's file`() async throws {
        #expect(
            try await probeMainLoop("a parent's paths in a child") == [
                "closed: exit", "there: true", "gone: true",
            ])
    }

    @Test func `a child that closes streams of its parent that are connecting ends no attempt`() async throws
    {
        #expect(
            try await probeMainLoop("connecting streams in a child") == ["closed: exit", "connecting: true"])
    }

    @Test func `a child that closes a stream that its parent hands off does not wake the parent`()
        async throws
    {
        #expect(
            try await probeMainLoop("a parent's hand-off in a child") == ["closed: exit", "wake-ups: 1"])
    }

    @Test func `output that a child has written to a stream of its own is sent when it exits`() async throws {
        #expect(try await probeMainLoop("a child's own streams") == ["everything: true", "child: exit"])
    }

    @Test func `a child that exits neither sends its parent's pending output nor waits for it`() async throws
    {
        #expect(
            try await probeMainLoop("a parent's pending output") == ["child: exit", "the parent's: 50000"])
    }
}
