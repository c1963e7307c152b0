import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct DescriptorSourceTests {
    @Test func `an unread byte calls once in every pass`() async throws {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in trace("called") }
            try loop.add(source, forMode: .default)
            pipe.put()
            for pass in 1...3 {
                trace("pass \(pass)")
                loop.poll()
            }
            source.cancel()
            loop.poll()
        }
        #expect(trace == ["pass 1", "called", "pass 2", "called", "pass 3", "called"])
    }

    @Test func `interest in both reports both at once, and each alone`() async throws {
        let calls = try await onItsOwnThread { () -> [Readiness] in
            let (one, other) = try Channel.socketPair.open()
            var calls: [Readiness] = []
            let source = DescriptorSource(one, for: [.readable, .writable]) { _, readiness in
                calls.append(readiness)
            }
            try RunLoop.current.add(source, forMode: .default)
            RunLoop.current.poll()
            try other.writeAll([1])
            for interest: Readiness in [[.readable, .writable], .readable, [], .writable] {
                try source.setInterest(interest)
                RunLoop.current.poll()
            }
            source.cancel()
            try one.close()
            try other.close()
            return calls
        }
        #expect(calls == [.writable, [.readable, .writable], .readable, .writable])
    }

    @Test func `a source with no interest keeps its mode from being empty and is not called`() throws {
        let pipe = try TestPipe()
        pipe.put()
        let source = DescriptorSource(pipe.readEnd, for: []) { _, _ in Issue.record("called") }
        try RunLoop.current.add(source, forMode: .default)
        #expect(RunLoop.current.run(in: .default, until: .after(milliseconds: 3)) == .timedOut)
        source.cancel()
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test func `interest that comes later counts in every mode of the source`() async throws {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            pipe.put()
            let source = DescriptorSource(pipe.readEnd, for: []) { _, _ in trace("called") }
            let held = [loop.hold(.default), loop.hold(.custom), loop.hold(.inner)]
            for mode in [RunLoop.Mode.default, .custom] { loop.poll(mode) }
            for mode in [RunLoop.Mode.default, .custom, .inner] { try loop.add(source, forMode: mode) }
            try source.setInterest(.readable)
            for mode in [RunLoop.Mode.default, .custom, .inner] {
                trace(mode.rawValue)
                loop.poll(mode)
            }
            source.cancel()
            for source in held { source.invalidate() }
        }
        let modes = [RunLoop.Mode.default, .custom, .inner].map(\.rawValue)
        #expect(trace == [modes[0], "called", modes[1], "called", modes[2], "called"])
    }

    @Test func `interest that the kernel refuses leaves a source as it was`() throws {
        let loop = RunLoop.current
        let file = try FileDescriptor.open("/proc/self/exe", .readOnly)
        let source = DescriptorSource(file, for: []) { _, _ in Issue.record("called") }
        try loop.add(source, forMode: .default)
        for _ in 0..<2 {
            #expect(throws: Errno.notPermitted) { try source.setInterest(.readable) }
            #expect(source.interest == [])
            #expect(loop.contains(source, forMode: .default))
            loop.poll()
        }
        source.cancel()
        try file.close()
    }

    @Test func `interest removed in a callback is gone in the same pass`() throws {
        let loop = RunLoop.current
        let pipes = [try TestPipe(), try TestPipe()]
        var sources: [DescriptorSource] = []
        var calls = 0
        for pipe in pipes {
            pipe.put()
            let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                calls += 1
                for source in sources { try? source.setInterest([]) }
            }
            sources.append(source)
            try loop.add(source, forMode: .default)
        }
        for _ in 0..<3 { loop.poll() }
        #expect(calls == 1)
        for source in sources { try source.setInterest(.readable) }
        loop.poll()
        #expect(calls == 2)
        for source in sources { source.cancel() }
    }

    @Test func `all that is ready is called in one pass, or one at a time for who wants to return`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let pipes = try (0..<10).map { _ in try TestPipe() }
            var calls: [Int] = []
            var sources: [DescriptorSource] = []
            for (index, pipe) in pipes.enumerated() {
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                    pipe.get()
                    calls.append(index)
                }
                try loop.add(source, forMode: .default)
                sources.append(source)
                pipe.put()
            }
            loop.poll()
            #expect(calls.sorted() == Array(0..<10))
            calls = []
            for pipe in pipes { pipe.put() }
            for count in 1...10 {
                #expect(loop.run(mode: .default, before: .minutesAway))
                #expect(calls.count == count)
            }
            #expect(calls.sorted() == Array(0..<10))
            for source in sources { source.cancel() }
        }
    }
}
