import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// What an activation leaves over for the next: descriptors that were ready, and have not been served.
@Suite(.runLoop) struct DeferredReadinessTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    /// Runs until one source is handled; polls for it.
    private func serveOne() -> RunLoop.RunResult {
        loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true)
    }

    /// Two pipes with a byte in each, of which the first activation serves one.
    private func afterOneOfTwo(
        _ body: (_ left: TestPipe, _ name: String, _ sources: [DescriptorSource]) throws -> Void
    ) throws {
        let pipes = [try TestPipe(), try TestPipe()]
        let sources = zip(pipes, ["a", "b"]).map { DescriptorSource($0, trace, $1) }
        for source in sources { try loop.add(source, forMode: .default) }
        for pipe in pipes { pipe.put() }
        #expect(loop.run(in: .default, returnAfterSourceHandled: true) == .handledSource)
        let isFirstServed = trace.take() == ["a"]
        try body(pipes[isFirstServed ? 1 : 0], isFirstServed ? "b" : "a", sources)
    }

    @Test func `what was read between two activations is not delivered by the second`() throws {
        try afterOneOfTwo { left, _, _ in
            left.get()
            let limit = Deadline.after(milliseconds: 2)
            #expect(loop.run(in: .default, until: limit, returnAfterSourceHandled: true) == .timedOut)
            #expect(trace.all.isEmpty)
        }
    }

    @Test func `what is still ready is delivered by the next activation, even one that polls`() throws {
        try afterOneOfTwo { _, name, _ in
            #expect(serveOne() == .handledSource)
            #expect(trace.all == [name])
        }
    }

    @Test(arguments: [true, false])
    func `an activation that polls finds what is ready behind a leftover that is read or cancelled`(
        isCancelled: Bool
    ) throws {
        try afterOneOfTwo { left, _, sources in
            if isCancelled { for source in sources { source.cancel() } } else { left.get() }
            let other = try TestPipe()
            other.put()
            try loop.add(DescriptorSource(other, trace, "other"), forMode: .default)
            #expect(serveOne() == .handledSource)
            #expect(trace.all == ["other"])
        }
    }

    @Test func `of a leftover, the part that is still true is delivered`() throws {
        let (one, other) = try Channel.socketPair.open()
        let pipe = try TestPipe()
        var calls: [Readiness] = []
        let sources = [
            DescriptorSource(pipe.readEnd, for: .readable) { _, _ in },
            DescriptorSource(one, for: [.readable, .writable]) { _, readiness in calls.append(readiness) },
        ]
        for source in sources { try loop.add(source, forMode: .default) }
        pipe.put()
        try other.writeAll([1])
        // Whichever of the two the next activation begins with, the other is left over.
        while calls.count < 2 { _ = serveOne() }
        _ = one.readOne()
        calls = []
        while calls.isEmpty { _ = serveOne() }
        #expect(calls == [.writable])
        for source in sources { source.cancel() }
        for end in [one, other] { try end.close() }
    }

    @Test func `a hang-up is delivered by the next activation`() throws {
        let pairs = [try Channel.socketPair.open(), try Channel.socketPair.open()]
        for pair in pairs {
            let source = DescriptorSource(pair.reader, for: .readable) { source, _ in
                trace("hung up")
                source.cancel()
            }
            try loop.add(source, forMode: .default)
        }
        for pair in pairs { try pair.writer.close() }
        // A process that another test is just starting may hold the other ends a moment longer.
        while trace.all.count < 2 { #expect(loop.run(mode: .default, before: .distantFuture)) }
        for pair in pairs { try pair.reader.close() }
    }
}
