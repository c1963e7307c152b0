import Glibc
import ReactorTestSupport
import ReactorTesting
import Testing

#if DEBUG
@testable import Reactor
#else
import Reactor
#endif

@Suite(.runLoop) struct StopTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test(arguments: ["no activation", "the exit observer", "a handled source"])
    func `a stop without an activation that could end by it is not remembered`(place: String) {
        loop.hold(.default)
        switch place {
        case "no activation": loop.stop()
        case "the exit observer":
            loop.observeOnce(.exit) { loop.stop() }
            loop.poll()
        default:
            loop.addSignalled { loop.stop() }
            #expect(loop.run(in: .default, returnAfterSourceHandled: true) == .handledSource)
        }
        #expect(loop.run(in: .default, until: .after(milliseconds: 1)) == .timedOut)
    }

    @Test func `a stop while an activation begins makes no pass, and still notifies the exit observers`() {
        loop.hold(.default)
        loop.observe { activity in
            trace("\(activity)")
            if activity == .entry { loop.stop() }
        }
        #expect(loop.run(in: .default) == .stopped)
        #expect(trace.all == ["entry", "exit"])
    }

    @Test func `a stop ends the innermost activation only`() {
        for mode in [RunLoop.Mode.default, .inner] { loop.hold(mode) }
        Timer.scheduled(after: .zero) { _ in
            Timer.scheduled(after: .zero, forMode: .inner) { _ in loop.stop() }
            #expect(loop.run(in: .inner) == .stopped)
        }
        #expect(loop.run(in: .default, until: .after(milliseconds: 10)) == .timedOut)
    }

    @Test func `a stop before nesting stops the outer activation once the inner one has ended`() {
        for mode in [RunLoop.Mode.default, .inner] { loop.hold(mode) }
        loop.perform {
            loop.stop()
            #expect(loop.run(in: .inner, until: .after(milliseconds: 2)) == .timedOut)
        }
        #expect(loop.run(in: .default) == .stopped)
    }

    @Test func `a stop from another thread ends a wait`() throws {
        loop.hold(.default)
        let stopper = try loop.whenAsleep { loop.stop() }
        #expect(loop.run(in: .default) == .stopped)
        stopper.join()
    }

    @Test(arguments: [RunLoop.Activities.beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting])
    func `a stop at any point of a pass keeps the loop from sleeping again`(activity: RunLoop.Activities) {
        loop.hold(.default)
        loop.observe(activity) { _ in loop.stop() }
        if activity == .afterWaiting { Timer.scheduled(after: .milliseconds(1)) { _ in } }
        #expect(loop.run(in: .default) == .stopped)
    }

    @Test func `stopping a loop's thread lets a nested activation end by itself, then ends the thread`()
        throws
    {
        let thread = try RunLoopThread(name: "nesting")
        let isNested = Answer<Bool>()
        let isStopped = Shared(false)
        thread.runLoop.perform {
            let loop = RunLoop.current
            Timer.scheduled(every: .milliseconds(1), forMode: .common) { timer in
                guard isStopped.value else { return isNested.give(true) }
                trace("inner continues")
                timer.invalidate()
                loop.stop()
            }
            Timer.scheduled(after: .seconds(1000)) { _ in trace("late timer") }
            trace("inner \(loop.run(in: .default))")
        }
        _ = isNested.wait()
        thread.runLoop.perform { isStopped.value = true }
        thread.stop()
        #expect(trace.all == ["inner continues", "inner stopped"])
    }

    #if DEBUG

    @Test func `a stop between two passes keeps the loop from sleeping`() {
        let inbox = Inbox(loopName: "run loop")
        _ = inbox.beginActivation(in: .default)
        inbox.stop()
        inbox.beginPass()
        #expect(!inbox.beginSleep(on: 0))
        #expect(inbox.isStopRequested)
    }

    #endif

    // One after the other: each case keeps two processors busy.
    @Test(.serialized, arguments: [(StoppedRun.outermost, 1_000), (.nested, 500), (.hosted, 100)])
    func `a thread that sees a mode stops the activation in it, and no other`(
        kind: StoppedRun, count: Int
    ) throws {
        let held = [loop.hold(.default), loop.hold(.inner)]
        /// How many activations have ended; -1 after the last.
        let ended = Shared(0)
        let thread = try JoinableThread(name: "stopping") {
            var known = 0
            while known >= 0 {
                // Once for each activation, as soon as the mode is seen.
                if loop.currentMode == .inner {
                    loop.stop()
                    while ended.value == known { sched_yield() }
                }
                known = ended.value
            }
        }
        let stopped = Shared(0)
        let runAll: @Sendable () -> Void = {
            while stopped.value < count, kind.isStopped(loop) {
                stopped.value += 1
                ended.value = stopped.value
            }
            ended.value = -1
            for source in held { source.invalidate() }
        }
        if kind == .outermost { runAll() } else { loop.perform(runAll) }
        #expect(loop.run(in: .default) == .finished)
        thread.join()
        #expect(stopped.value == count)
    }
}

/// An activation in `RunLoop.Mode.inner` that another thread stops.
enum StoppedRun {
    case outermost, nested, hosted

    /// Runs `loop` once; false if it is not stopped.
    fileprivate func isStopped(_ loop: RunLoop) -> Bool {
        guard self == .hosted else { return loop.run(in: .inner, until: .minutesAway) == .stopped }
        guard let hosting = try? RunLoop.Hosting(loop, mode: .inner) else { return false }
        defer { hosting.end() }
        while hosting.dispatch() {
            var request = pollfd(fd: hosting.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
            guard poll(&request, 1, 120_000) > 0 else { return false }
        }
        return true
    }
}
