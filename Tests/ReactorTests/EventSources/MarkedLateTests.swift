#if DEBUG

import Testing

@testable import Reactor

@Suite struct MarkedLateTests {
    @Test func `a source without interest that is marked after its mode has run is served`() async throws {
        let trace = try await traced { loop, trace in
            let source = Noting(trace)
            try loop.add(source, forMode: .default)
            loop.poll()
            source.markReady()
            loop.poll()
            source.end()
        }
        #expect(trace == ["served"])
    }
}

/// A source without a descriptor, which notes that it is served.
private final class Noting: EventSource {
    private let trace: Trace

    init(_ trace: Trace) {
        self.trace = trace
        super.init(-1, for: [])
    }

    override func serve(_ readiness: Readiness) { trace("served") }
}

#endif
