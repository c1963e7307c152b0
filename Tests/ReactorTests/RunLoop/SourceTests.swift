import Reactor
import ReactorTesting
import Testing

/// A source that notes what it is told.
private func tellingSource(_ trace: Trace) -> RunLoop.Source {
    RunLoop.Source(
        scheduled: { _, mode in trace("in \(mode)") }, cancelled: { _, mode in trace("out of \(mode)") },
        perform: { trace("perform") })
}

@Suite(.runLoop) struct SourceTests {
    @Test func `scheduled and cancelled are called once for each mode`() async throws {
        let trace = try await traced { loop, trace in
            let source = tellingSource(trace)
            for _ in 0..<2 { loop.add(source, forMode: .custom) }
            for _ in 0..<2 { loop.add(source, forMode: .common) }
            trace("removing")
            for _ in 0..<2 { loop.remove(source, forMode: .custom) }
            for _ in 0..<2 { loop.remove(source, forMode: .common) }
        }
        let common = ["\(RunLoop.Mode.default)", "\(RunLoop.Mode.tracking)"]
        #expect(
            trace == ["in custom"] + common.map { "in \($0)" } + ["removing", "out of custom"]
                + common.map { "out of \($0)" })
    }

    @Test func `scheduled of a common source is called once for a mode that becomes common`() async throws {
        let trace = try await traced { loop, trace in
            loop.add(tellingSource(trace), forMode: .common)
            trace("becomes common")
            for _ in 0..<2 { loop.addCommonMode(.custom) }
        }
        #expect(trace.suffix(2) == ["becomes common", "in custom"])
    }

    @Test func `scheduled and cancelled are called on the thread that adds or removes the source`()
        async throws
    {
        let home = try RunLoopThread(name: "home")
        let trace = try await traced { _, trace in
            let source = RunLoop.Source(
                scheduled: { loop, _ in trace("\(loop == home.runLoop) \(loop.isCurrent)") },
                cancelled: { loop, _ in trace("\(loop == home.runLoop) \(loop.isCurrent)") }, perform: {})
            home.runLoop.add(source, forMode: .custom)
            home.runLoop.remove(source, forMode: .custom)
        }
        home.stop()
        #expect(trace == ["true false", "true false"])
    }

    @Test func `signals before the service coalesce`() async throws {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { trace("perform") }
            loop.add(source, forMode: .default)
            for _ in 0..<5 { source.signal() }
            for _ in 0..<2 { loop.poll() }
        }
        #expect(trace == ["perform"])
    }

    @Test func `a signal from within asks for one more`() async throws {
        let trace = try await traced { loop, trace in
            let own = Shared<RunLoop.Source?>(nil)
            let source = RunLoop.Source {
                trace("signalled: \(own.value?.isSignalled == true)")
                if trace.all.count < 3 { own.value?.signal() } else { RunLoop.current.stop() }
            }
            own.value = source
            loop.add(source, forMode: .default)
            source.signal()
            loop.run(in: .default)
            own.value = nil
        }
        #expect(trace == Array(repeating: "signalled: false", count: 3))
    }

    @Test func `a signalled source waits for a pass in one of its modes`() async throws {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { trace("perform") }
            loop.add(source, forMode: .custom)
            loop.hold(.default)
            source.signal()
            loop.poll()
            trace("\(source.isSignalled)")
            loop.poll(.custom)
        }
        #expect(trace == ["true", "perform"])
    }

    @Test func `a source that was signalled before it is added is served`() async throws {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { trace("perform") }
            source.signal()
            loop.add(source, forMode: .default)
            loop.poll()
        }
        #expect(trace == ["perform"])
    }

    @Test func `of two loops, the one that serves a source first consumes the signal`() async throws {
        let served = Trace()
        let source = RunLoop.Source { served("perform") }
        let other = try RunLoopThread(name: "other")
        other.runLoop.add(source, forMode: .default)
        let trace = try await traced { loop, trace in
            loop.add(source, forMode: .default)
            source.signal()
            // The first may run after the sources of its pass, the second before those of the next.
            for _ in 0..<3 { other.runLoop.performAndWait(inModes: [.default]) {} }
            trace("\(served.all)")
            loop.poll()
            trace("\(served.all)")
            source.signal()
            loop.poll()
            trace("\(source.isSignalled)")
        }
        other.stop()
        #expect(trace == ["[\"perform\"]", "[\"perform\"]", "false"])
    }

    @Test func `invalidating removes a source from all modes of all loops, and calls cancelled`() async throws
    {
        let other = try RunLoopThread(name: "other")
        let trace = try await traced { loop, trace in
            let source = tellingSource(trace)
            loop.add(source, forMode: .custom)
            loop.add(source, forMode: .inner)
            other.runLoop.add(source, forMode: .outer)
            source.signal()
            _ = trace.take()
            for _ in 0..<2 { source.invalidate() }
            trace("\(source.isSignalled) \(source.isValid) \(loop.contains(source, forMode: .custom))")
            loop.hold(.custom)
            loop.poll(.custom)
        }
        other.stop()
        let told = ["out of custom", "out of inner", "out of outer"]
        #expect(trace.dropLast().sorted() == told)
        #expect(trace.last == "false false false")
    }

    @Test func `an invalid source is neither added nor signalled`() async throws {
        let trace = try await traced { loop, trace in
            let source = tellingSource(trace)
            source.invalidate()
            loop.add(source, forMode: .default)
            source.signal()
            trace("\(source.isSignalled) \(loop.run(mode: .default, before: .distantPast))")
        }
        #expect(trace == ["false false"])
    }

    @Test func `a source that another one invalidates or removes in the same pass is not served`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let victims = [RunLoop.Source(order: 2) { trace("a") }, RunLoop.Source(order: 3) { trace("b") }]
            let first = RunLoop.Source(order: 1) {
                trace("first")
                victims[0].invalidate()
                RunLoop.current.remove(victims[1], forMode: .default)
            }
            for source in victims + [first] {
                loop.add(source, forMode: .default)
                source.signal()
            }
            loop.poll()
            loop.hold(.default)
            loop.poll()
            trace("\(victims[1].isSignalled)")
        }
        #expect(trace == ["first", "true"])
    }
}
