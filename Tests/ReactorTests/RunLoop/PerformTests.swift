import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct PerformTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test func `a block that counts as a source does so whatever blocks follow it`() {
        loop.performAsSource { [trace] in trace("source") }
        loop.perform { [trace] in trace("block") }
        #expect(loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true) == .handledSource)
        #expect(trace.all == ["source", "block"])
    }

    // MARK: After a delay

    @Test func `a delayed block runs once, in the default mode, after its delay`() {
        withVirtualTime { time in
            let start = time.now
            let token = loop.perform(after: .seconds(5)) {
                trace("block")
                #expect(time.now == start + .seconds(5))
            }
            #expect(loop.contains(token, forMode: .default))
            #expect(!loop.contains(token, forMode: .tracking))
            #expect(loop.run(in: .default) == .finished)
            #expect(trace.all == ["block"] && !token.isValid)
        }
    }

    @Test(arguments: [Duration.zero, .seconds(-3)])
    func `no delay means a later pass, never at once`(delay: Duration) {
        loop.perform(after: delay) {
            trace("first")
            loop.perform(after: delay) { trace("second") }
            trace("asked")
        }
        trace("before")
        loop.poll()
        trace("next pass")
        loop.poll()
        #expect(trace.all == ["before", "first", "asked", "next pass", "second"])
    }

    @Test(arguments: [[RunLoop.Mode.custom, .modalPanel], [.common], [.tracking, .common]])
    func `a delayed block runs once, in the first of its modes to run`(modes: [RunLoop.Mode]) {
        loop.perform(after: .zero, inModes: modes) { trace(loop.currentMode!.rawValue) }
        let first: RunLoop.Mode = modes.contains(.common) ? .tracking : .modalPanel
        for mode in [.inner, .outer, first, .default, .custom] { loop.poll(mode) }
        #expect(trace.all == [first.rawValue])
    }

    @Test func `a delayed block keeps the mode from being empty, and does not make a run return`() {
        var runs = 0
        loop.hold(.default)
        for _ in 0..<3 { loop.perform(after: .milliseconds(1)) { runs += 1 } }
        loop.perform(after: .milliseconds(2)) { loop.stop() }
        #expect(loop.run(mode: .default, before: .distantFuture))
        #expect(runs == 3)
        let token = loop.perform(after: .seconds(900), inModes: [.custom]) {}
        #expect(loop.poll(.custom) == .timedOut)
        token.invalidate()
        #expect(loop.poll(.custom) == .finished)
    }

    @Test func `delayed blocks that are due together run in the order of the calls, cancelled ones never`() {
        let tokens = Shared<[Timer]>([])
        tokens.value = (0..<50).map { index in
            loop.perform(after: .zero) {
                trace("\(index)")
                if index == 7 { tokens.value[8].invalidate() }
            }
        }
        Deadline.now.busyWait()
        loop.poll()
        #expect(trace.all == (0..<50).filter { $0 != 8 }.map { "\($0)" })
    }

    @Test func `a delayed block is released when it has run, is cancelled, or has no mode`() {
        func request(_ delay: Duration, _ modes: [RunLoop.Mode] = [.default]) -> (token: Timer, fate: Fate) {
            let witness = Witness()
            let token = loop.perform(after: delay, inModes: modes) { withExtendedLifetime(witness) {} }
            return (token, Fate(witness))
        }
        #expect(request(.zero, []).fate.isFreed)
        let (ran, cancelled) = (request(.zero), request(.seconds(60)))
        #expect(!ran.fate.isFreed && !cancelled.fate.isFreed)
        loop.poll()
        #expect(ran.fate.isFreed && !ran.token.isValid)
        #expect(!cancelled.fate.isFreed)
        cancelled.token.invalidate()
        #expect(cancelled.fate.isFreed)
    }

    // MARK: As a source

    @Test func `blocks posted as sources all run in one pass, in order, and end the activation`() {
        for index in 0..<3 { loop.performAsSource { trace("\(index)") } }
        #expect(loop.run(mode: .default, before: .distantFuture))
        #expect(trace.all == ["0", "1", "2"])
    }

    @Test func `a block posted as a source is for the common modes, and never runs at once`() {
        loop.hold(.custom)
        loop.performAsSource { trace("block") }
        loop.poll(.custom)
        #expect(trace.all.isEmpty)
        loop.poll(.tracking)
        #expect(trace.all == ["block"])
    }

    // MARK: And waiting

    @Test func `performing and waiting runs at once on the loop's own thread, whatever the mode`() {
        #expect(loop.performAndWait(inModes: [.custom]) { 42 } == 42)
    }

    @Test func `performing and waiting on another thread's loop returns the result, or throws`() throws {
        struct Failure: Error {}
        let thread = try RunLoopThread(name: "worker")
        #expect(thread.runLoop.performAndWait { thread.runLoop.isCurrent })
        #expect(throws: Failure.self) { try thread.runLoop.performAndWait { throw Failure() } }
        thread.stop()
    }

    // MARK: In an order

    @Test func `ordered blocks run at the start of the next pass in their order, each once`() {
        for (index, order) in [3, 1, 2, 1].enumerated() {
            loop.perform(order: order) { trace("\(order) asked at \(index)") }
        }
        loop.perform { trace("block") }
        for _ in 0..<2 { loop.poll() }
        #expect(trace.all == ["1 asked at 1", "1 asked at 3", "2 asked at 2", "3 asked at 0", "block"])
    }

    @Test func `a run that an ordered block begins returns at once if there is nothing else`() {
        loop.perform(order: 0) { #expect(!loop.run(mode: .default, before: .distantFuture)) }
        loop.poll()
    }

    @Test func `an ordered block can be cancelled, also by one before it`() {
        let second = loop.perform(order: 2) { trace("second") }
        loop.perform(order: 1) {
            trace("first")
            second.invalidate()
        }
        loop.perform(order: 3) { trace("third") }.invalidate()
        loop.poll()
        #expect(trace.all == ["first"])
    }

    @Test func `an ordered block gets each of its modes started, once, until it is cancelled`() {
        loop.perform(order: 0, inModes: [.custom, .inner]) { trace("cancelled") }.invalidate()
        #expect(loop.poll(.custom) == .finished)
        loop.perform(order: 0, inModes: [.custom, .inner]) { trace("block") }
        #expect(loop.poll(.inner) == .timedOut)
        #expect(loop.poll(.custom) == .finished)
        #expect(trace.all == ["block"])
    }

    @Test func `an ordered block requested in a pass runs in the next, without a sleep between`() {
        loop.hold(.default)
        loop.observe(.beforeWaiting) { _ in loop.perform(order: 0) { loop.stop() } }
        #expect(loop.run(in: .default) == .stopped)
    }
}
