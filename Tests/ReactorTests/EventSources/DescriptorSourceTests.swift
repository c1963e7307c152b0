import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

#if DEBUG
@testable import Reactor
#else
import Reactor
#endif

@Suite(.runLoop) struct DescriptorSourceTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    /// A source that traces the running mode, and reads a byte.
    private func source(of pipe: TestPipe, then body: @escaping () -> Void = {}) -> DescriptorSource {
        DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
            pipe.get()
            trace("\(loop.currentMode!)")
            body()
        }
    }

    // MARK: Service

    @Test
    func `all that is ready is called in one pass, or one at a time in runs that return after a source`()
        throws
    {
        let pipes = try (0..<10).map { _ in try TestPipe() }
        for (index, pipe) in pipes.enumerated() {
            try loop.add(DescriptorSource(pipe, trace, "\(index)"), forMode: .default)
            pipe.put()
        }
        loop.poll()
        #expect(trace.take().sorted() == (0..<10).map { "\($0)" })
        for pipe in pipes { pipe.put() }
        for count in 1...10 {
            #expect(loop.run(mode: .default, before: .minutesAway))
            #expect(trace.all.count == count)
        }
        #expect(trace.all.sorted() == (0..<10).map { "\($0)" })
    }

    @Test
    func `a source in two modes is served in both, and a byte read in one is not delivered in the other`()
        throws
    {
        let pipe = try TestPipe()
        let source = source(of: pipe)
        for mode in [RunLoop.Mode.outer, .inner] { try loop.add(source, forMode: mode) }
        for mode in [RunLoop.Mode.outer, .inner, .default] {
            pipe.put()
            loop.poll(mode)
        }
        loop.poll(.inner)
        loop.remove(source, forMode: .inner)
        pipe.put()
        loop.poll(.inner)
        loop.poll(.outer)
        #expect(trace.all == ["outer", "inner", "inner", "outer"])
    }

    @Test func `readiness collected in one mode is not served again after another mode served it`() throws {
        for pipe in [try TestPipe(), try TestPipe()] {
            // Serves the other, which the outer pass has collected too.
            let source = source(of: pipe) { loop.poll(.inner) }
            for mode in [RunLoop.Mode.outer, .inner] { try loop.add(source, forMode: mode) }
            pipe.put()
        }
        loop.poll(.outer)
        #expect(trace.take() == ["outer", "inner"])
        loop.poll(.outer)
        #expect(trace.all.isEmpty)
    }

    // MARK: Interest

    @Test func `interest in both reports both at once, and each alone`() throws {
        let (one, other) = try Channel.socketPair.open()
        var calls: [Readiness] = []
        let source = DescriptorSource(one, for: [.readable, .writable]) { _, readiness in
            calls.append(readiness)
        }
        try loop.add(source, forMode: .default)
        loop.poll()
        try other.writeAll([1])
        for interest: Readiness in [[.readable, .writable], .readable, [], .writable] {
            try source.setInterest(interest)
            loop.poll()
        }
        #expect(calls == [.writable, [.readable, .writable], .readable, .writable])
        source.cancel()
        for end in [one, other] { try end.close() }
    }

    @Test func `interest that comes later counts in every mode of the source, run before or not`() throws {
        let pipe = try TestPipe()
        pipe.put()
        let source = DescriptorSource(pipe.readEnd, for: []) { _, _ in trace("\(loop.currentMode!)") }
        loop.hold(.custom)
        loop.poll(.custom)
        for mode in [RunLoop.Mode.outer, .custom, .inner] { try loop.add(source, forMode: mode) }
        // Without interest it is not called, but keeps its mode from being empty.
        #expect(loop.poll(.outer) == .timedOut && trace.all.isEmpty)
        try source.setInterest(.readable)
        for mode in [RunLoop.Mode.outer, .custom, .inner] { loop.poll(mode) }
        #expect(trace.all == ["outer", "custom", "inner"])
    }

    @Test func `interest that the kernel refuses leaves a source as it was`() throws {
        let file = try FileDescriptor.open("/proc/self/exe", .readOnly)
        let source = DescriptorSource(file, for: []) { _, _ in Issue.record("called") }
        try loop.add(source, forMode: .default)
        for _ in 0..<2 {
            expectErrno(.notPermitted) { try source.setInterest(.readable) }
            #expect(source.interest == [])
            #expect(loop.contains(source, forMode: .default))
            loop.poll()
        }
        source.cancel()
        try file.close()
    }

    #if DEBUG

    @Test func `a source marked ready without interest is served once, in a mode that has run or not`() throws
    {
        let source = Raising(trace)
        source.markReady()
        for mode in [RunLoop.Mode.default, .custom] { try loop.add(source, forMode: mode) }
        loop.poll()
        #expect(trace.take() == ["marked"])
        for modes in [[RunLoop.Mode.custom, .default], [.default, .custom]] {
            source.markReady()
            for mode in modes { loop.poll(mode) }
            #expect(trace.take() == ["marked"])
        }
        loop.hold(.inner)
        loop.poll(.inner)
        let unwatched = Raising(trace)
        try loop.add(unwatched, forMode: .inner)
        loop.poll(.inner)
        unwatched.markReady()
        loop.poll(.inner)
        #expect(trace.take() == ["marked"])
        for each in [source, unwatched] { each.cancel() }
    }

    #endif
}

#if DEBUG

/// A source without a descriptor, which traces when it is served.
private final class Raising: EventSource {
    private let trace: Trace

    init(_ trace: Trace) {
        self.trace = trace
        super.init(-1, for: [])
    }

    override func serve(_ readiness: Readiness) -> Bool {
        if readiness == .marked { trace("marked") }
        return true
    }
}

#endif
