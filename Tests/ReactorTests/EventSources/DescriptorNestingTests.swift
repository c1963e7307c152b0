import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Descriptor sources in nested activations, and in more modes than one.
@Suite(.runLoop) struct DescriptorNestingTests {
    @Test func `the readiness of a skipped source does not keep a nested wait awake`() throws {
        let loop = RunLoop.current
        let pipe = try TestPipe()
        var (depth, calls, passes) = (0, 0, 0)
        loop.observe(.beforeTimers) { _ in if depth > 0 { passes += 1 } }
        let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
            #expect(depth == 0)
            (depth, calls) = (depth + 1, calls + 1)
            #expect(loop.run(in: .default, until: .after(milliseconds: 10)) == .timedOut)
            depth -= 1
        }
        try loop.add(source, forMode: .default)
        pipe.put()
        loop.poll()
        #expect(calls == 1)
        #expect(passes <= 3)
        loop.poll()  // the registration is back: the byte is still there
        #expect(calls == 2)
        source.cancel()
    }

    @Test func `interest changed while the source is skipped takes effect when its callback has returned`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            let (one, other) = try Channel.socketPair.open()
            var calls: [Readiness] = []
            let source = DescriptorSource(one, for: .readable) { source, readiness in
                calls.append(readiness)
                guard calls.count == 1 else { return }
                loop.poll()
                try? source.setInterest(.writable)
                loop.poll()
            }
            try loop.add(source, forMode: .default)
            try other.writeAll([1])
            loop.poll()
            loop.poll()
            #expect(calls == [.readable, .writable])
            source.cancel()
            try one.close()
            try other.close()
        }
    }

    @Test
    func `a source in two modes is served in both, and a byte read in one is not delivered in the other`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            let source = DescriptorSource(pipe, loop, trace)
            try loop.add(source, forMode: .outer)
            try loop.add(source, forMode: .inner)
            for mode in [RunLoop.Mode.outer, .inner, .default] {
                pipe.put()
                loop.poll(mode)
            }
            loop.poll(.inner)
            loop.remove(source, forMode: .inner)
            pipe.put()
            loop.poll(.inner)
            loop.poll(.outer)
            source.cancel()
        }
        #expect(trace == ["outer", "inner", "inner", "outer"])
    }

    @Test func `readiness collected in one mode is not served again after another mode served it`()
        async throws
    {
        let trace = try await traced { loop, trace in
            for pipe in [try TestPipe(), try TestPipe()] {
                let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                    pipe.get()
                    trace("\(loop.currentMode!)")
                    loop.poll(.inner)  // serves the other, which the outer pass has collected too
                }
                try loop.add(source, forMode: .outer)
                try loop.add(source, forMode: .inner)
                pipe.put()
            }
            loop.poll(.outer)
            trace("next")
            loop.poll(.outer)
        }
        #expect(trace == ["outer", "inner", "next"])
    }
}

extension DescriptorSource {
    /// Notes the running mode whenever `pipe` has something to read, and reads one byte of it.
    fileprivate convenience init(_ pipe: TestPipe, _ loop: RunLoop, _ trace: Trace) {
        self.init(pipe.readEnd, for: .readable) { _, _ in
            pipe.get()
            trace("\(loop.currentMode!)")
        }
    }
}
