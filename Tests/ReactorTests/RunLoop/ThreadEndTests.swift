import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// What becomes of a loop, and of what is in it, when its thread ends. `LifetimeTests` has the items' closures.
@Suite(.runLoop) struct ThreadEndTests {
    private let trace = Trace()

    /// The loop of a thread that has ended, after `body` used it.
    private func endedLoop(_ body: @escaping @Sendable (RunLoop) throws -> Void = { _ in }) throws -> RunLoop
    {
        let loop = Answer<RunLoop>()
        try onAThread {
            loop.give(.current)
            try body(.current)
        }
        return loop.wait()
    }

    @Test func `cancelled is called on a thread's loop that ends, and can neither run it nor add to it`()
        throws
    {
        let source = RunLoop.Source(
            cancelled: { loop, mode in
                trace("out of \(mode) \(loop.isCurrent) \(loop === RunLoop.current)")
                loop.add(Timer(interval: .seconds(100)) { _ in }, forMode: .default)
                loop.hold(.default)
                loop.perform { trace("block") }
                trace("\(loop.run(mode: .default, before: .distantFuture))")
            }, perform: {})
        let loop = try endedLoop { $0.add(source, forMode: .custom) }
        #expect(trace.all == ["out of custom true true", "false"])
        #expect(!loop.contains(source, forMode: .custom) && loop.currentMode == nil)
        #expect(source.isValid)
    }

    @Test func `a loop that has ended accepts no items and retains none`() throws {
        let loop = try endedLoop()
        #expect(loop != .current)
        let timer = Timer(interval: .zero) { _ in }
        let source = RunLoop.Source(scheduled: { _, _ in Issue.record("scheduled") }, perform: {})
        loop.add(timer, forMode: .default)
        loop.add(source, forMode: .default)
        func post() -> Fate {
            let witness = Witness()
            loop.perform { withExtendedLifetime(witness) {} }
            return Fate(witness)
        }
        #expect(post().isFreed)
        #expect(!loop.contains(timer, forMode: .default))
        #expect(!loop.contains(source, forMode: .default))
        loop.wakeUp()
        loop.stop()
        #expect(timer.isValid)
    }

    @Test func `a poller with something unserved ends with its loop`() async {
        // In a process of its own, in which only this opens descriptors.
        await #expect(processExitsWith: .success) {
            let endLoop = { @Sendable in
                try onAThread {
                    for _ in 0..<2 { try Kind.descriptor.makeItem {}.add(to: .current, .default) }
                    #expect(RunLoop.current.run(mode: .default, before: .distantPast))
                }
            }
            try endLoop()
            let before = ownDescriptors()
            for _ in 0..<3 { try endLoop() }
            precondition(ownDescriptors() == before)
        }
    }

    @Test
    func
        `a source added while the loop's thread ends is told that it has left each mode it was told to be in`()
        throws
    {
        let (loop, mayEnd) = (Answer<RunLoop>(), Answer<Void>())
        let thread = try JoinableThread(name: "ending") {
            loop.give(.current)
            mayEnd.wait()
        }
        let source = RunLoop.Source(
            scheduled: { _, mode in
                trace("into \(mode)")
                mayEnd.give(())
                thread.join()
            },
            cancelled: { _, mode in trace("out of \(mode)") }, perform: {})
        loop.wait().add(source, forMode: .custom)
        #expect(!loop.wait().contains(source, forMode: .custom))
        #expect(trace.all == ["into custom", "out of custom"])
    }

    @Test func `threads may post while the loop's thread ends`() throws {
        for _ in 0..<50 {
            let loop = Answer<RunLoop>()
            let thread = try JoinableThread(name: "ending") {
                RunLoop.current.hold(.default)
                loop.give(.current)
                RunLoop.current.run(in: .default, until: .after(milliseconds: 1))
            }
            let hasEnded = Shared(false)
            let crowd = try JoinableThread(name: "crowd") {
                onThreads(2) { _ in
                    while !hasEnded.value {
                        loop.wait().perform {}
                        let timer = Timer(interval: .seconds(9)) { _ in }
                        loop.wait().add(timer, forMode: .default)
                        timer.invalidate()
                        loop.wait().wakeUp()
                    }
                }
            }
            thread.join()
            hasEnded.value = true
            crowd.join()
        }
    }
}
