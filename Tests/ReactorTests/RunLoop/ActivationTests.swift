import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// How runs of the loop end, and when.
@Suite(.runLoop) struct ActivationTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    // MARK: Empty modes

    @Test func `an empty or unknown mode returns at once and notifies no observer`() {
        loop.observe(in: .custom) { trace("\($0)") }
        #expect(loop.run(in: .custom) == .finished)
        for mode in [RunLoop.Mode.custom, .inner] { #expect(!loop.run(mode: mode, before: .distantFuture)) }
        loop.run(until: .distantFuture)
        loop.run()
        #expect(loop.limitDate(forMode: .default) == nil)
        #expect(trace.all.isEmpty)
    }

    @Test(arguments: Kind.allCases)
    func `any item but an observer keeps a mode from being empty`(kind: Kind) throws {
        try kind.makeItem {}.add(to: loop, .custom)
        #expect(loop.run(mode: .custom, before: .distantPast) == (kind != .observer))
    }

    @Test func `a mode with nothing but a block runs it and then waits for its limit`() {
        withVirtualTime { time in
            loop.perform(inModes: [.custom]) { trace("block") }
            let limit = Deadline.minutesAway
            #expect(loop.run(in: .custom, until: limit) == .timedOut)
            #expect(time.now == limit)
            #expect(trace.all == ["block"])
        }
    }

    @Test func `an activation whose last item another thread removes before the first pass ends`() {
        let held = loop.hold(.default)
        loop.observe(.entry) { _ in onThreads(1) { _ in held.invalidate() } }
        #expect(loop.run(in: .default, until: .minutesAway) == .finished)
    }

    // MARK: Dates

    @Test func `run(until:) continues after a source, until nothing is left`() {
        let held = loop.hold(.default)
        loop.performAsSource {
            trace("source")
            loop.performAsSource {
                trace("block")
                held.invalidate()
            }
        }
        loop.run(until: .minutesAway)
        #expect(trace.all == ["source", "block"])
    }

    @Test func `run ends when nothing is left, and not before, even if it is stopped`() {
        Timer.scheduled(after: .milliseconds(1)) { _ in
            trace("first")
            loop.stop()
            Timer.scheduled(after: .milliseconds(1)) { _ in trace("second") }
        }
        loop.run()
        #expect(trace.all == ["first", "second"])
    }

    // MARK: Handled sources

    @Test func `timers, observers and blocks do not count as handled`() {
        withVirtualTime { time in
            loop.observe { _ in }
            loop.perform {}
            Timer.scheduled(after: .zero) { _ in trace("timer") }
            loop.hold(.default)
            let limit = Deadline.minutesAway
            #expect(loop.run(in: .default, until: limit, returnAfterSourceHandled: true) == .timedOut)
            #expect(time.now == limit)
            #expect(trace.all == ["timer"])
        }
    }

    @Test func `a handled source takes precedence over a deadline that has passed, and both over a stop`() {
        let source = RunLoop.Source { loop.stop() }
        loop.add(source, forMode: .default)
        for (returns, result) in [(true, RunLoop.RunResult.handledSource), (false, .timedOut)] {
            source.signal()
            #expect(
                loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: returns) == result)
        }
        source.signal()
        #expect(loop.run(in: .default) == .stopped)
    }

    // MARK: Limit dates and input

    @Test func `the limit date is that of the mode's earliest timer, whatever its tolerance`() {
        loop.hold(.default)
        #expect(loop.limitDate(forMode: .default) == .distantFuture)
        let late = Timer.scheduled(after: .seconds(900), tolerance: .seconds(500)) { _ in }
        let early = Timer.scheduled(after: .seconds(600), forMode: .common, tolerance: .seconds(500)) { _ in }
        Timer.scheduled(after: .seconds(60), forMode: .custom) { _ in }
        #expect(loop.limitDate(forMode: .default) == early.fireDate)
        early.invalidate()
        #expect(loop.limitDate(forMode: .default) == late.fireDate)
    }

    @Test func `asking for the limit date polls once, and is nil if that leaves nothing`() {
        Timer.scheduled(after: .zero) { _ in trace("timer") }
        #expect(loop.limitDate(forMode: .default) == nil)
        #expect(trace.all == ["timer"])
    }

    @Test func `running once returns after a source, or after the only timer has fired`() {
        let source = loop.addSignalled { trace("source") }
        loop.run(mode: .default, before: .distantFuture)
        #expect(trace.take() == ["source"])
        source.invalidate()
        Timer.scheduled(after: .milliseconds(2)) { _ in trace("timer") }
        loop.run(mode: .default, before: .minutesAway)
        #expect(trace.all == ["timer"])
    }

    @Test func `another thread's loop cannot be run, and has no limit date`() throws {
        let thread = try RunLoopThread(name: "other")
        let other = thread.runLoop
        #expect(!other.run(mode: .default, before: .distantFuture))
        #expect(other.limitDate(forMode: .default) == nil)
        other.run()
        other.run(until: .distantFuture)
        thread.stop()
    }
}
