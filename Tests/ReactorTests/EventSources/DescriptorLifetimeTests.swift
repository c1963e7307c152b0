import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Cancelling, removing, closing and releasing. `LifetimeTests` has what descriptor sources share with other items.
@Suite(.runLoop) struct DescriptorLifetimeTests {
    private let loop = RunLoop.current

    enum Silence: CaseIterable, Sendable { case cancelled, removed, withoutInterest }

    @Test(arguments: Silence.allCases)
    func `of two ready sources, one that the other's callback silences is not called until that is undone`(
        silence: Silence
    ) throws {
        let pipes = [try TestPipe(), try TestPipe()]
        var sources: [DescriptorSource] = []
        // Each source's handler holds them all.
        defer { for source in sources { source.cancel() } }
        var calls = 0
        for pipe in pipes {
            let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                calls += 1
                for source in sources {
                    switch silence {
                    case .cancelled: source.cancel()
                    case .removed: loop.remove(source, forMode: .default)
                    case .withoutInterest: try? source.setInterest([])
                    }
                }
            }
            sources.append(source)
            try loop.add(source, forMode: .default)
            pipe.put()
        }
        for _ in 0..<2 { loop.poll() }
        #expect(calls == 1)
        #expect(sources.allSatisfy { $0.isValid == (silence != .cancelled) })
        guard silence != .cancelled else { return }
        for source in sources {
            try source.setInterest(.readable)
            try loop.add(source, forMode: .default)
        }
        loop.poll()
        #expect(calls == 2)
    }

    @Test(arguments: [RunLoop.Mode.default, .common])
    func `a number closed and used again within a pass gets no event of the old one`(mode: RunLoop.Mode)
        throws
    {
        let pipes = [try TestPipe(), try TestPipe()]
        let spare = try TestPipe()
        var sources: [DescriptorSource] = []
        var (calls, strangers) = (0, 0)
        for (index, pipe) in pipes.enumerated() {
            let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                calls += 1
                let victim = sources[1 - index]
                for source in sources { source.cancel() }
                // Closes and opens in one step, because tests on other threads open descriptors too.
                #expect(dup2(spare.readEnd.rawValue, victim.descriptor.rawValue) >= 0)
                let stranger = DescriptorSource(victim.descriptor, for: .readable) { _, _ in strangers += 1 }
                try? loop.add(stranger, forMode: mode)
            }
            sources.append(source)
            try loop.add(source, forMode: mode)
            pipe.put()
        }
        for _ in 0..<3 { loop.poll() }
        #expect(calls == 1)
        #expect(strangers == 0)
        spare.put()
        loop.poll()
        #expect(strangers == 1)
    }
}
