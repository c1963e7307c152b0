import Testing

@testable import Reactor

@Suite struct DescriptorRaiseTests {
    @Test func `what is raised without interest calls once, in a mode that has run or not`() async throws {
        let trace = try await traced { loop, trace in
            let source = Raising(trace)
            source.raise()
            for mode in [RunLoop.Mode.default, .custom] { try loop.add(source, forMode: mode) }
            loop.poll()
            source.raise()
            loop.poll(.custom)
            loop.poll()
            source.raise()
            loop.poll()
            loop.poll(.custom)
            source.end()
        }
        #expect(trace == ["raised", "raised", "raised"])
    }
}

/// A source without a descriptor, which notes when it is served.
private final class Raising: EventSource {
    private let trace: Trace

    init(_ trace: Trace) {
        self.trace = trace
        super.init(-1, for: [])
    }

    override func serve(_ readiness: Readiness) { if readiness == .raised { trace("raised") } }
}
