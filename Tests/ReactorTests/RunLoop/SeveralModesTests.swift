import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct SeveralModesTests {
    @Test func `work of two modes that is served or cancelled in one leaves nothing in the other`()
        async throws
    {
        let kinds = [
            "blocks", "signals", "messages", "timers", "ordered blocks", "cancelled ordered blocks",
            "signals and removals",
        ]
        #expect(try await probeMainLoop("left in modes") == kinds.map { "\($0): nothing" })
    }

    @Test func `signals that one loop serves leave nothing in another`() async throws {
        #expect(try await probeMainLoop("left in loops") == ["signals: nothing"])
    }

    @Test func `a block of two modes is in the order of posting in each of them`() async throws {
        let trace = try await traced { loop, trace in
            let modes: [[RunLoop.Mode]] = [
                [.default], [.custom, .default], [.common], [.inner, .custom], [.tracking, .common],
                [.default],
            ]
            for (index, modes) in modes.enumerated() { loop.perform(inModes: modes) { trace("\(index)") } }
            loop.poll()
            trace("custom")
            loop.poll(.custom)
            trace("\(loop.poll(.inner))")
        }
        #expect(trace == ["0", "1", "2", "4", "5", "custom", "3", "finished"])
    }

    @Test func `a block of two modes gets either of them started, once`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform(inModes: [.custom, .inner]) { trace("block") }
            trace("\(loop.poll(.outer))")
            trace("\(loop.poll(.inner))")
            trace("\(loop.poll(.custom))")
        }
        #expect(trace == ["finished", "block", "timedOut", "finished"])
    }

    @Test func `a block for two modes is released when it has run, and when its thread ends`()
        async throws
    {
        let (ran, waited) = try await onItsOwnThread {
            let fates = [RunLoop.Mode.custom, .inner].map { mode in
                let witness = Witness()
                RunLoop.current.perform(inModes: [mode, .outer]) { withExtendedLifetime(witness) {} }
                return Fate(witness)
            }
            RunLoop.current.poll(.custom)
            #expect(fates.map(\.isFreed) == [true, false])
            return (Shared(fates[0].witness == nil), AtTheEndOfThread(fates[1]))
        }
        #expect(ran.value)
        waitUntil { waited.fate.isFreed }
    }

    @Test func `an ordered block gets its mode started until it has been cancelled`() async throws {
        let trace = try await traced { loop, trace in
            let token = loop.perform(order: 0, inModes: [.custom, .inner]) { trace("block") }
            token.invalidate()
            trace("\(loop.poll(.custom))")
            loop.perform(order: 0, inModes: [.custom, .inner]) { trace("block") }
            trace("\(loop.poll(.inner))")
            trace("\(loop.poll(.custom))")
        }
        #expect(trace == ["finished", "block", "timedOut", "finished"])
    }
}

/// Lets a fate be looked at on another thread.
private struct AtTheEndOfThread: Sendable {
    let fate: Fate

    init(_ fate: Fate) { self.fate = fate }
}
