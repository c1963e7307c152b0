#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct MarkedReadyTests {
    @Test func `a source marked ready without interest is served once, in a mode that has run or not`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let source = Raising(trace)
            source.markReady()
            for mode in [RunLoop.Mode.default, .custom] { try loop.add(source, forMode: mode) }
            loop.poll()
            source.markReady()
            loop.poll(.custom)
            loop.poll()
            source.markReady()
            loop.poll()
            loop.poll(.custom)
            source.end()
        }
        #expect(trace == ["marked", "marked", "marked"])
    }
}

/// A source without a descriptor, which notes when it is served.
private final class Raising: EventSource {
    private let trace: Trace

    init(_ trace: Trace) {
        self.trace = trace
        super.init(-1, for: [])
    }

    override func serve(_ readiness: Readiness) { if readiness == .marked { trace("marked") } }
}

#endif
