import ReactorTesting
import Testing

/// What becomes of loops and signals in a child of fork(2), and what the child does to its parent: nothing.
@Suite(.runLoop) struct ForkTests {
    private static let refused = [
        "run", "run before", "current", "schedule", "add a timer", "add a source", "cancel", "interest",
        "perform", "perform and wait", "enqueue a job", "wake", "stop", "stop a thread",
    ]
    private static let harmless = [
        "invalidate", "ask", "explain", "send by a queue", "end the thread", "nothing",
    ]

    private static let probes = [
        Probe(
            "a child that uses a loop of its parent is refused, and the parent loses nothing",
            "loops in a child",
            refused.map { "\($0): refused" } + harmless.map { "\($0): exit" } + ["served", "true woken"]),
        Probe(
            "a handler that forks and returns in the child continues in the parent only",
            "fork in a handler", ["refused 2"]),
        Probe(
            "in a child, signals have their earlier actions, and are not delivered to the parent's sources",
            "signals in a child",
            ["ignored: exit", "deadly: signal 15", "in the parent: 0", "caught: 2"]),
        Probe(
            "a thread without a loop that forks may have one in the child", "a fresh loop in a child",
            ["timer true", "signals: 1", "finished", "exit", "in the parent: -1"]),
        Probe(
            "a child that closes a stream of its parent sends none of its bytes, and does not wait for them",
            "a parent's streams in a child", ["written: -1", "closed: exit", "everything: true"]),
        Probe(
            "a child that closes a stream that a thread of its parent reads closes the descriptor",
            "a stream that the parent reads in a child", ["closed: exit"]),
        Probe(
            "a child that closes a socket of its parent leaves the socket's file",
            "a parent's paths in a child", ["closed: exit", "there: true", "gone: true"]),
        Probe(
            "a child that closes streams of its parent that are connecting ends no attempt",
            "connecting streams in a child", ["closed: exit", "connecting: true"]),
        Probe(
            "a child that closes a stream that its parent hands off does not wake the parent",
            "a parent's hand-off in a child", ["closed: exit", "wake-ups: 1"]),
        Probe(
            "output that a child has written to a stream of its own is sent when it exits",
            "a child's own streams", ["everything: true", "child: exit"]),
        Probe(
            "a child that exits neither sends its parent's pending output nor waits for it",
            "a parent's pending output", ["child: exit", "the parent's: 50000"]),
    ]

    /// Under the thread sanitizer the child finds the Swift runtime's locks held by the worker.
    @Test(.enabled(if: !isSanitized))
    func `a child that closes a file of its parent does not wait for the parent's worker`() async throws {
        #expect(
            try await probeMainLoop("a parent's file in a child") == ["closed: exit", "everything: true"])
    }

    @Test(arguments: probes)
    func `a child of fork has nothing of its parent's loops, and changes none`(probe: Probe) async throws {
        try await probe.run()
    }
}
