import Reactor
import ReactorTesting
import Testing

/// How a source leaves its loop, and comes back, in its own callback.
enum SourceReturn: CaseIterable, Sendable {
    case sameMode, otherMode, fromOtherThread, signalFirst

    func leaveAndReturn(_ source: RunLoop.Source, _ loop: RunLoop) {
        switch self {
        case .sameMode: `return`(source, loop, .default)
        case .otherMode: `return`(source, loop, .custom)
        case .fromOtherThread:
            let thread = try? JoinableThread(name: "returning") { `return`(source, loop, .default) }
            thread?.join()
        case .signalFirst:
            source.signal()
            loop.remove(source, forMode: .default)
            loop.add(source, forMode: .default)
        }
    }

    private func `return`(_ source: RunLoop.Source, _ loop: RunLoop, _ mode: RunLoop.Mode) {
        loop.remove(source, forMode: .default)
        loop.add(source, forMode: mode)
        source.signal()
    }
}

@Suite(.runLoop) struct SourceReturnTests {
    @Test(arguments: SourceReturn.allCases)
    func `a source removed and added again in its callback is called when the callback has returned`(
        way: SourceReturn
    ) async throws {
        let trace = try await traced { loop, trace in
            for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
            let (own, depth) = (Shared<RunLoop.Source?>(nil), Shared(0))
            let source = RunLoop.Source {
                let calls = depth.update { depth in
                    depth += 1
                    return depth
                }
                trace("depth \(calls)")
                if let source = own.value.take(), calls == 1 {
                    way.leaveAndReturn(source, loop)
                    for mode in [RunLoop.Mode.default, .custom] { loop.poll(mode) }
                }
                depth.value -= 1
            }
            own.value = source
            loop.add(source, forMode: .default)
            source.signal()
            loop.poll()
            trace("returned")
            for mode in [RunLoop.Mode.default, .custom] { loop.poll(mode) }
        }
        #expect(trace == ["depth 1", "returned", "depth 1"])
    }

    @Test func `a source that is invalidated in its callback leaves nothing in the loop`() async throws {
        let trace = try await traced { loop, trace in
            let fate: Fate
            do {
                let witness = Witness()
                fate = Fate(witness)
                let own = Shared<RunLoop.Source?>(nil)
                let source = RunLoop.Source {
                    own.value?.invalidate()
                    own.value = nil
                    trace("called \(withExtendedLifetime(witness) { fate.isFreed })")
                }
                own.value = source
                loop.add(source, forMode: .common)
                source.signal()
            }
            loop.poll()
            trace("\(fate.isFreed) \(loop.poll())")
        }
        #expect(trace == ["called false", "true finished"])
    }

    @Test(arguments: [Kind.descriptor, .timer, .observer])
    func `no item that is removed and added again in its callback is called within it`(kind: Kind)
        async throws
    {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            pipe.put()
            let called = Shared(0)
            func call(_ leaveAndReturn: () -> Void) {
                guard
                    called.update({
                        $0 += 1
                        return $0
                    }) == 1
                else { return trace("called inside") }
                leaveAndReturn()
                for _ in 0..<3 { loop.poll() }
                trace("returned")
                loop.stop()
            }
            loop.hold(.default)
            switch kind {
            case .descriptor:
                let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                    call {
                        loop.remove(source, forMode: .default)
                        try? loop.add(source, forMode: .default)
                    }
                }
                try loop.add(source, forMode: .default)
            case .timer:
                Timer.scheduled(every: .microseconds(100)) { timer in
                    call {
                        loop.remove(timer, forMode: .default)
                        loop.add(timer, forMode: .default)
                        timer.fireDate = .distantPast
                    }
                }
            default:
                loop.add(
                    RunLoop.Observer(for: .beforeTimers) { observer, _ in
                        call {
                            loop.remove(observer, forMode: .default)
                            loop.add(observer, forMode: .default)
                        }
                    }, forMode: .default)
            }
            trace("\(loop.run(in: .default, until: .minutesAway))")
        }
        #expect(trace == ["returned", "stopped"])
    }
}
