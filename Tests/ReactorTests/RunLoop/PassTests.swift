import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct PassTests {
    @Test func `a pass runs blocks, sources, blocks, timers and descriptors, between its observers`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.observe { trace("\($0)") }
            let source = RunLoop.Source { trace("source") }
            loop.add(source, forMode: .default)
            source.signal()
            let pipe = try TestPipe()
            pipe.put()
            try loop.add(DescriptorSource(pipe, trace, "descriptor"), forMode: .default)
            Timer.scheduled(after: .zero) { _ in trace("timer") }
            loop.perform {
                trace("block")
                loop.perform { trace("block of block") }
            }
            trace("\(loop.run(in: .default, returnAfterSourceHandled: true))")
        }
        #expect(
            trace == [
                "entry", "beforeTimers", "beforeSources", "block", "source", "block of block", "timer",
                "descriptor", "exit", "handledSource",
            ])
    }

    @Test func `a pass that sleeps notifies the waiting observers, and a woken handler runs afterwards`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.observe { trace("\($0)\(loop.isWaiting ? "!" : "")") }
            Timer.scheduled(after: .milliseconds(2)) { _ in trace("timer\(loop.isWaiting ? "!" : "")") }
            trace("\(loop.run(in: .default))")
        }
        #expect(
            trace == [
                "entry", "beforeTimers", "beforeSources", "beforeWaiting", "afterWaiting", "timer", "exit",
                "finished",
            ])
    }

    @Test func `a pass past its deadline neither waits nor notifies the waiting observers`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.observe { trace("\($0)") }
            trace("\(loop.poll())")
        }
        #expect(trace == ["entry", "beforeTimers", "beforeSources", "exit", "timedOut"])
    }

    @Test func `a pass that has served a source does not wait`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe([.beforeTimers, .beforeWaiting]) { trace("\($0)") }
            let source = RunLoop.Source { trace("source") }
            loop.add(source, forMode: .default)
            source.signal()
            let timer = Timer.scheduled(after: .seconds(100)) { _ in }
            loop.observe(.beforeWaiting) { _ in
                timer.invalidate()
                loop.stop()
            }
            loop.run(in: .default)
        }
        #expect(trace == ["beforeTimers", "source", "beforeTimers", "beforeWaiting"])
    }

    @Test func `a timer that is due fires even in a pass that has served a source`() async throws {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { trace("source") }
            loop.add(source, forMode: .default)
            source.signal()
            Timer.scheduled(after: .zero) { _ in trace("timer") }
            loop.run(mode: .default, before: .distantFuture)
        }
        #expect(trace == ["source", "timer"])
    }

    @Test func `a source that a block signals is served in the same pass`() async throws {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { trace("source") }
            loop.add(source, forMode: .default)
            loop.perform {
                trace("block")
                source.signal()
            }
            loop.observe(.beforeTimers) { trace("\($0)") }
            trace("\(loop.run(in: .default, until: .minutesAway, returnAfterSourceHandled: true))")
        }
        #expect(trace == ["beforeTimers", "block", "source", "handledSource"])
    }

    @Test func `a source that is signalled while sources are served waits for the next pass`() async throws {
        let trace = try await traced { loop, trace in
            let late = RunLoop.Source(order: 9) { trace("late") }
            let early = RunLoop.Source(order: 1) {
                trace("early")
                late.signal()
            }
            for source in [early, late] { loop.add(source, forMode: .default) }
            early.signal()
            loop.observe(.beforeTimers) { trace("\($0)") }
            loop.poll()
            loop.poll()
        }
        #expect(trace == ["beforeTimers", "early", "beforeTimers", "late"])
    }

    @Test func `sources are served in their order, equal ones as they were signalled`() async throws {
        let trace = try await traced { loop, trace in
            let sources = [5, -1, 5, 0].enumerated().map { index, order in
                RunLoop.Source(order: order) { trace("\(index)") }
            }
            for source in sources.reversed() { loop.add(source, forMode: .default) }
            for index in [2, 3, 0, 1, 2] { sources[index].signal() }
            loop.poll()
        }
        #expect(trace == ["1", "3", "2", "0"])
    }

    @Test func `sources of the mode and of the common modes are served in one order`() async throws {
        let trace = try await traced { loop, trace in
            for (order, mode) in [(3, .default), (1, .default), (2, .common), (4, .common)]
                as [(Int, RunLoop.Mode)]
            {
                let source = RunLoop.Source(order: order) { trace("\(order)") }
                loop.add(source, forMode: mode)
                source.signal()
            }
            loop.poll()
        }
        #expect(trace == ["1", "2", "3", "4"])
    }

    @Test func `returning after a source serves the first signalled one and keeps the others`() async throws {
        let trace = try await traced { loop, trace in
            for order in [2, 1, 3] {
                let source = RunLoop.Source(order: order) { trace("\(order)") }
                loop.add(source, forMode: .default)
                source.signal()
            }
            for _ in 0..<3 {
                loop.run(mode: .default, before: .distantFuture)
                trace("returned")
            }
        }
        #expect(trace == ["1", "returned", "2", "returned", "3", "returned"])
    }

    @Test func `one pass serves every ready descriptor, each once`() async throws {
        let trace = try await traced { loop, trace in
            let pipes = try (0..<5).map { _ in try TestPipe() }
            for (index, pipe) in pipes.enumerated() {
                pipe.put(2)
                try loop.add(DescriptorSource(pipe, trace, "\(index)"), forMode: .default)
            }
            loop.poll()
        }
        #expect(trace.sorted() == ["0", "1", "2", "3", "4"])
    }

    @Test func `returning after a source keeps what else was ready for the next activation`() async throws {
        let trace = try await traced { loop, trace in
            let pipes = [try TestPipe(), try TestPipe()]
            for (index, pipe) in pipes.enumerated() {
                pipe.put()
                try loop.add(DescriptorSource(pipe, trace, "\(index)"), forMode: .default)
            }
            loop.run(mode: .default, before: .distantFuture)
            loop.observe(.beforeWaiting) { _ in trace("waits") }
            loop.run(mode: .default, before: .distantFuture)
        }
        #expect(trace.sorted() == ["0", "1"])
    }

    @Test func `what was kept but cancelled since does not spare a pass the kernel`() async throws {
        let trace = try await traced { loop, trace in
            let pipes = [try TestPipe(), try TestPipe(), try TestPipe()]
            var sources: [DescriptorSource] = []
            for pipe in pipes {
                sources.append(
                    DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                        trace("served")
                        for each in sources { each.cancel() }
                    })
            }
            for (pipe, source) in zip(pipes, sources).prefix(2) {
                pipe.put()
                try loop.add(source, forMode: .default)
            }
            loop.run(mode: .default, before: .distantFuture)
            pipes[2].put()
            try loop.add(DescriptorSource(pipes[2], trace, "other"), forMode: .default)
            loop.poll()
        }
        #expect(trace == ["served", "other"])
    }
}
