import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct PerformTests {
    @Test func `a delayed block never runs at once, also without delay`() async throws {
        let trace = try await traced { loop, trace in
            for delay in [Duration.zero, .seconds(-1)] { loop.perform(after: delay) { trace("block") } }
            trace("asked")
            loop.run(in: .default)
        }
        #expect(trace == ["asked", "block", "block"])
    }

    @Test func `a delayed block is not early`() async throws {
        let time = try await onItsOwnThread { () -> Duration in
            let start = Deadline.now
            var time = Duration.zero
            RunLoop.current.perform(after: .milliseconds(5)) { time = start.duration(to: .now) }
            RunLoop.current.run(in: .default)
            return time
        }
        #expect(time >= .milliseconds(5))
    }

    @Test func `a delayed block runs in its modes only, and keeps them from being empty`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform(after: .zero, inModes: [.custom]) { trace("block") }
            trace("\(loop.run(mode: .default, before: .distantPast))")
            trace("\(loop.run(mode: .custom, before: .distantPast))")
        }
        #expect(trace == ["false", "block", "true"])
    }

    @Test func `a delayed block does not end run before a date`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.perform(after: .zero) { trace("block") }
            loop.perform(after: .milliseconds(1)) {
                trace("later")
                loop.stop()
            }
            loop.run(mode: .default, before: .distantFuture)
        }
        #expect(trace == ["block", "later"])
    }

    @Test func `blocks with the same delay run in the order of the calls`() async throws {
        let trace = try await traced { loop, trace in
            for index in 0..<20 { loop.perform(after: .zero) { trace("\(index)") } }
            loop.run(in: .default)
        }
        #expect(trace == (0..<20).map { "\($0)" })
    }

    @Test func `a delayed block can be cancelled, also by another of the same pass`() async throws {
        let trace = try await traced { loop, trace in
            var second: Timer?
            loop.perform(after: .zero) {
                trace("first")
                second?.invalidate()
            }
            second = loop.perform(after: .zero) { trace("second") }
            loop.perform(after: .zero) { trace("third") }
            loop.run(in: .default)
        }
        #expect(trace == ["first", "third"])
    }

    @Test func `a delayed block is released when it has run or is cancelled`() async throws {
        let trace = try await traced { loop, trace in
            var fates: [Fate] = []
            var tokens: [Timer] = []
            for _ in 0..<2 {
                let witness = Witness()
                fates.append(Fate(witness))
                tokens.append(loop.perform(after: .zero) { withExtendedLifetime(witness) {} })
            }
            trace("\(fates.map(\.isFreed))")
            tokens[0].invalidate()
            trace("\(fates.map(\.isFreed))")
            loop.run(in: .default)
            trace("\(fates.map(\.isFreed))")
        }
        #expect(trace == ["[false, false]", "[true, false]", "[true, true]"])
    }

    @Test func `blocks posted as sources all run in one pass, in order, and end the activation`()
        async throws
    {
        let trace = try await traced { loop, trace in
            for index in 0..<3 { loop.performAsSource { trace("\(index)") } }
            trace("\(loop.run(mode: .default, before: .distantFuture))")
        }
        #expect(trace == ["0", "1", "2", "true"])
    }

    @Test func `a block posted as a source is for the common modes, and never runs at once`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.custom)
            loop.performAsSource { trace("block") }
            loop.poll(.custom)
            trace("not yet")
            loop.poll(.tracking)
        }
        #expect(trace == ["not yet", "block"])
    }

    @Test func `a block posted as a source from another thread ends run before a date`() async throws {
        let loop = Answer<RunLoop>()
        async let hasReturned = onItsOwnThread {
            RunLoop.current.hold(.default)
            loop.give(.current)
            return RunLoop.current.run(mode: .default, before: .distantFuture)
        }
        try await onItsOwnThread { loop.wait().performAsSource {} }
        #expect(try await hasReturned)
    }

    @Test func `performing and waiting runs at once on the loop's own thread, whatever the mode`()
        async throws
    {
        let answer = try await onItsOwnThread { RunLoop.current.performAndWait(inModes: [.custom]) { 42 } }
        #expect(answer == 42)
    }

    @Test func `performing and waiting on another thread's loop returns the result, or throws`() async throws
    {
        struct Failure: Error {}
        let thread = try RunLoopThread(name: "worker")
        let isHome = try await onItsOwnThread {
            thread.runLoop.performAndWait { thread.runLoop.isCurrent }
        }
        #expect(isHome)
        await #expect(throws: Failure.self) {
            try await onItsOwnThread { try thread.runLoop.performAndWait { throw Failure() } }
        }
        thread.stop()
    }

    @Test func `ordered blocks run at the start of the next pass in their order, each once`() async throws {
        let trace = try await traced { loop, trace in
            for (index, order) in [3, 1, 2, 1].enumerated() {
                loop.perform(order: order) { trace("\(order) asked at \(index)") }
            }
            loop.perform { trace("block") }
            loop.poll()
            loop.poll()
        }
        #expect(trace == ["1 asked at 1", "1 asked at 3", "2 asked at 2", "3 asked at 0", "block"])
    }

    @Test func `a run that an ordered block begins returns at once if there is nothing else`() async throws {
        let trace = try await traced { loop, trace in
            loop.perform(order: 0) {
                trace("\(loop.run(mode: .default, before: .now.advanced(by: .milliseconds(20))))")
            }
            loop.poll()
        }
        #expect(trace == ["false"])
    }

    @Test func `an ordered block can be cancelled, also by one before it`() async throws {
        let trace = try await traced { loop, trace in
            let second = loop.perform(order: 2) { trace("second") }
            loop.perform(order: 1) {
                trace("first")
                second.invalidate()
            }
            loop.perform(order: 3) { trace("third") }.invalidate()
            loop.poll()
        }
        #expect(trace == ["first"])
    }

    @Test func `an ordered block requested in a pass runs in the next, without a sleep between`()
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            loop.observe(.beforeWaiting) { _ in
                loop.perform(order: 0) {
                    trace("block")
                    loop.stop()
                }
            }
            trace("\(loop.run(in: .default))")
        }
        #expect(trace.first == "block")
    }
}
