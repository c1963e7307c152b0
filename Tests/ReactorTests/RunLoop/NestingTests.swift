import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct NestingTests {
    @Test func `a nested activation in a callback calls the other observers, and not that observer`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.observe(.beforeTimers) { _ in
                trace("nests")
                loop.poll()
                trace("has nested")
            }
            loop.observe(.beforeSources) { _ in trace("other") }
            loop.poll()
        }
        #expect(trace == ["nests", "other", "has nested", "other"])
    }

    @Test func `a nested activation in a callback fires the other timers once, and not that timer`()
        async throws
    {
        let trace = try await traced { loop, trace in
            Timer.scheduled(every: .microseconds(100)) { timer in
                trace("nests")
                let other = Timer.scheduled(after: .zero) { _ in trace("other") }
                // Both are due by then, this one for the second time.
                max(timer.fireDate + .microseconds(200), other.fireDate).busyWait()
                for _ in 0..<2 { loop.poll() }
                trace("has nested")
                timer.invalidate()
            }
            #expect(loop.run(in: .default) == .finished)
        }
        #expect(trace == ["nests", "other", "has nested"])
    }

    @Test func `timers that are due together fire once though the first of them nests`() async throws {
        let trace = try await traced { loop, trace in
            Timer.scheduled(after: .zero) { _ in
                trace("first begins")
                loop.poll()
                trace("first ends")
            }
            Timer.scheduled(after: .zero) { _ in trace("second") }
            loop.poll()
        }
        #expect(trace == ["first begins", "second", "first ends"])
    }

    @Test func `a source signalled in its own callback waits until that has returned`() async throws {
        let trace = try await traced { loop, trace in
            let nested = Shared<RunLoop.Source?>(nil)
            let depth = Shared(0)
            let source = RunLoop.Source {
                depth.value += 1
                trace("depth \(depth.value)")
                if trace.all.count == 1 {
                    nested.value?.signal()
                    trace("\(RunLoop.current.run(in: .default, until: .after(milliseconds: 2)))")
                }
                depth.value -= 1
            }
            nested.value = source
            loop.add(source, forMode: .default)
            source.signal()
            loop.poll()
            loop.poll()
            nested.value = nil
        }
        #expect(trace == ["depth 1", "timedOut", "depth 1"])
    }

    @Test func `other sources are served in a nested activation, and not again outside`() async throws {
        let trace = try await traced { loop, trace in
            let first = RunLoop.Source(order: 1) {
                trace("first begins")
                RunLoop.current.poll()
                trace("first ends")
            }
            let second = RunLoop.Source(order: 2) { trace("second") }
            for source in [second, first] {
                loop.add(source, forMode: .default)
                source.signal()
            }
            loop.poll()
        }
        #expect(trace == ["first begins", "second", "first ends"])
    }

    @Test func `a descriptor that is ready in its own callback does not keep a nested loop awake`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            pipe.put()
            var passes = 0
            loop.observe(.beforeTimers, in: .common) { _ in passes += 1 }
            let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                passes = 0
                trace("\(loop.run(in: .default, until: .after(milliseconds: 20)))")
                trace(passes < 5 ? "slept" : "spun")
                pipe.get()
            }
            try loop.add(source, forMode: .common)
            loop.poll()
            pipe.put()
            loop.poll()
        }
        #expect(trace == ["timedOut", "slept", "timedOut", "slept"])
    }

    @Test func `a descriptor that nesting had to silence is heard again afterwards, in every mode`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            pipe.put()
            var calls = 0
            let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                calls += 1
                if calls == 1 { for mode in [RunLoop.Mode.default, .tracking] { loop.poll(mode) } }
            }
            try loop.add(source, forMode: .common)
            for mode in [RunLoop.Mode.default, .tracking, .default, .tracking] {
                loop.poll(mode)
                trace("\(calls)")
            }
        }
        #expect(trace == ["1", "2", "3", "4"])
    }

    @Test func `a source cancelled in a nested activation of its own callback is not called again`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            pipe.put()
            let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                trace("called")
                loop.poll()
                Timer.scheduled(after: .zero) { _ in source.cancel() }
                loop.poll()
                trace("\(source.isValid)")
            }
            try loop.add(source, forMode: .default)
            loop.poll()
            loop.hold(.default)
            loop.poll()
        }
        #expect(trace == ["called", "false"])
    }

    @Test func `interest that changes while a descriptor is silenced takes effect afterwards`() async throws {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            pipe.put()
            let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                trace("called")
                loop.poll()
                try? source.setInterest([])
            }
            try loop.add(source, forMode: .default)
            for _ in 0..<2 { loop.poll() }
            try source.setInterest(.readable)
            loop.poll()
        }
        #expect(trace == ["called", "called"])
    }

    @Test func `activations nest a hundred deep and unwind in order`() async throws {
        let depth = 100
        let trace = try await traced { loop, trace in
            @Sendable func descend(_ level: Int) {
                guard level < depth else { return }
                loop.perform { descend(level + 1) }
                loop.poll()
                trace("\(level)")
            }
            loop.perform { descend(1) }
            loop.poll()
        }
        #expect(trace == (1..<depth).reversed().map { "\($0)" })
    }
}
