import Testing

@testable import Reactor

@Suite struct DescriptorRaiseTests {
    @Test func `what is raised without interest calls once, in a mode that has run or not`() async throws {
        let trace = try await traced { loop, trace in
            let owner = Raising(trace)
            let source = DescriptorSource(ownedBy: owner)
            source.raise()
            for mode in [RunLoop.Mode.default, .custom] { try loop.add(source, forMode: mode) }
            loop.poll()
            source.raise()
            loop.poll(.custom)
            loop.poll()
            source.raise()
            loop.poll()
            loop.poll(.custom)
            source.cancel()
        }
        #expect(trace == ["raised", "raised", "raised"])
    }
}

/// Owns a source, and notes when it is served.
private final class Raising: DescriptorSourceOwner {
    private let trace: Trace

    init(_ trace: Trace) { self.trace = trace }

    func serve(_: DescriptorSource, _ readiness: Readiness) { if readiness == .raised { trace("raised") } }
    func modeBecameCommon(_: RunLoop.Mode, on _: RunLoop) {}
    func loopEnded(_: RunLoop) {}
}
