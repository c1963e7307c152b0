import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// What an activation leaves over for the next: descriptors that were ready, and have not been served.
@Suite(.runLoop) struct DeferredReadinessTests {
    /// Two pipes with a byte in each, of which the first activation serves one.
    private static func afterOneOfTwo(
        _ body: @escaping @Sendable (RunLoop, Trace, _ left: TestPipe, _ name: String) throws -> Void
    ) async throws -> [String] {
        try await traced { loop, trace in
            let pipes = [try TestPipe(), try TestPipe()]
            let sources = zip(pipes, ["a", "b"]).map { DescriptorSource($0, trace, $1) }
            for source in sources { try loop.add(source, forMode: .default) }
            for pipe in pipes {
                _ = fcntl(pipe.readEnd.rawValue, F_SETFL, O_NONBLOCK)
                pipe.put()
            }
            #expect(loop.run(in: .default, returnAfterSourceHandled: true) == .handledSource)
            let isFirstServed = trace.take() == ["a"]
            try body(loop, trace, pipes[isFirstServed ? 1 : 0], isFirstServed ? "b" : "a")
            for source in sources { source.cancel() }
        }
    }

    @Test func `what was read between two activations is not delivered by the second`() async throws {
        let trace = try await Self.afterOneOfTwo { loop, _, left, _ in
            left.get()
            let result = loop.run(
                in: .default, until: .after(milliseconds: 2), returnAfterSourceHandled: true)
            #expect(result == .timedOut)
        }
        #expect(trace == [])
    }

    @Test func `what is still ready is delivered by the next activation, even one that polls`() async throws {
        _ = try await Self.afterOneOfTwo { loop, trace, _, name in
            #expect(
                loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true) == .handledSource)
            #expect(trace.take() == [name])
        }
    }

    @Test func `an activation that polls finds what is ready behind a leftover that is not`() async throws {
        _ = try await Self.afterOneOfTwo { loop, trace, left, name in
            left.get()
            let other = try TestPipe()
            other.put()
            let source = DescriptorSource(other, trace, "other")
            try loop.add(source, forMode: .default)
            loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true)
            #expect(trace.take() == ["other"])
            source.cancel()
        }
    }

    @Test func `of a leftover, the part that is still true is delivered`() throws {
        let loop = RunLoop.current
        let (one, other) = try Channel.socketPair.open()
        let pipe = try TestPipe()
        var calls: [Readiness] = []
        let sources = [
            DescriptorSource(pipe.readEnd, for: .readable) { _, _ in },
            DescriptorSource(one, for: [.readable, .writable]) { _, readiness in calls.append(readiness)
            },
        ]
        for source in sources { try loop.add(source, forMode: .default) }
        pipe.put()
        try other.writeAll([1])
        while calls.isEmpty {
            loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true)
        }
        while calls.count < 2 {
            // Whichever of the two the next activation begins with, the other is left over.
            loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true)
        }
        _ = one.readOne()
        calls = []
        while calls.isEmpty {
            loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true)
        }
        #expect(calls == [.writable])
        for source in sources { source.cancel() }
        try one.close()
        try other.close()
    }

    @Test func `a hang-up is delivered by the next activation`() throws {
        let loop = RunLoop.current
        let pairs = [try Channel.socketPair.open(), try Channel.socketPair.open()]
        var served: Set<FileDescriptor> = []
        let sources = pairs.map { pair in
            DescriptorSource(pair.reader, for: .readable) { source, _ in
                served.insert(source.descriptor)
                source.cancel()
            }
        }
        for source in sources { try loop.add(source, forMode: .default) }
        for pair in pairs { try pair.writer.close() }
        // A process that another test is just starting may hold the other ends a moment longer.
        loop.serve { served == Set(pairs.map(\.reader)) }
        for pair in pairs { try pair.reader.close() }
    }
}
