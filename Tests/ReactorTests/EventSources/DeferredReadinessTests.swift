import Reactor
import ReactorTestSupport
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

    /// What becomes of a descriptor that the first activation has left.
    enum Leftover: CaseIterable, Sendable { case kept, read, cancelled }

    @Test(arguments: Leftover.allCases, [false, true])
    func `an activation that polls delivers a leftover that is still ready, or what is ready behind it`(
        leftover: Leftover, hasOther: Bool
    ) throws {
        let pipes = [try TestPipe(), try TestPipe()]
        let sources = zip(pipes, ["a", "b"]).map { DescriptorSource($0, trace, $1) }
        for source in sources { try loop.add(source, forMode: .default) }
        for pipe in pipes { pipe.put() }
        #expect(serveOne() == .handledSource)
        let isFirstServed = trace.take() == ["a"]
        if leftover == .read { pipes[isFirstServed ? 1 : 0].get() }
        if leftover == .cancelled { for source in sources { source.cancel() } }
        let other = try TestPipe()
        if hasOther {
            other.put()
            try loop.add(DescriptorSource(other, trace, "other"), forMode: .default)
        }
        var ready = leftover == .kept ? [isFirstServed ? "b" : "a"] : []
        if hasOther { ready.append("other") }
        while serveOne() == .handledSource {}
        #expect(trace.all == ready)
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
