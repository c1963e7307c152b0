import Reactor
import ReactorTesting
import Testing

/// Timers that leave one loop and join another.
@Suite(.runLoop) struct TimerMovingTests {
    @Test func `a timer belongs to one loop, and another's addition is ignored`() async throws {
        let timer = Timer(fireDate: .distantFuture) { _ in }
        let thread = try RunLoopThread(name: "first")
        thread.runLoop.add(timer, forMode: .default)
        try await onItsOwnThread {
            RunLoop.current.add(timer, forMode: .custom)
            #expect(!RunLoop.current.contains(timer, forMode: .custom))
            #expect(RunLoop.current.poll(.custom) == .finished)
        }
        #expect(thread.runLoop.contains(timer, forMode: .default))
        thread.stop()
    }

    @Test func `a timer removed from all its modes stays valid, and may join another loop`() async throws {
        let trace = Trace()
        let timer = Timer(fireDate: .distantPast) { _ in trace("fired") }
        try await onItsOwnThread {
            let loop = RunLoop.current
            loop.add(timer, forMode: .custom)
            loop.add(timer, forMode: .modalPanel)
            loop.remove(timer, forMode: .custom)
            loop.remove(timer, forMode: .modalPanel)
            #expect(timer.isValid)
            #expect(loop.poll(.custom) == .finished)
        }
        try await onItsOwnThread {
            RunLoop.current.add(timer, forMode: .default)
            RunLoop.current.poll()
        }
        #expect(trace.all == ["fired"])
    }

    @Test func `a timer whose loop ended with its thread may join another`() async throws {
        let trace = Trace()
        let timer = Timer(interval: .milliseconds(1)) { _ in trace("fired") }
        try await onItsOwnThread { RunLoop.current.add(timer, forMode: .default) }
        try await onItsOwnThread {
            // The continuation of the thread that ended may be here before its loop's end.
            while !RunLoop.current.contains(timer, forMode: .default) {
                RunLoop.current.add(timer, forMode: .default)
            }
            RunLoop.current.run(in: .default)
        }
        #expect(trace.all == ["fired"])
    }

    @Test func `a timer that moves to another loop in its own callback fires there`() async throws {
        let other = try RunLoopThread(name: "other")
        let fired = Answer<Bool>()
        try await onItsOwnThread {
            let loop = RunLoop.current
            let timer = Timer(interval: .milliseconds(1), repeats: true) { timer in
                guard loop.isCurrent else {
                    timer.invalidate()
                    return fired.give(other.runLoop.isCurrent)
                }
                loop.remove(timer, forMode: .default)
                other.runLoop.add(timer, forMode: .default)
                other.runLoop.performAndWait {}
            }
            loop.add(timer, forMode: .default)
            #expect(loop.run(in: .default) == .finished)
            #expect(fired.wait())
        }
        other.stop()
    }

    @Test func `a one-shot that moves to another loop in its callback is invalid there, too`() async throws {
        let other = try RunLoopThread(name: "other")
        try await onItsOwnThread {
            let loop = RunLoop.current
            let timer = Timer(fireDate: .now) { timer in
                timer.fireDate = .distantFuture
                loop.remove(timer, forMode: .default)
                other.runLoop.add(timer, forMode: .custom)
                other.runLoop.performAndWait {}
            }
            loop.add(timer, forMode: .default)
            #expect(loop.run(in: .default) == .finished)
            #expect(!timer.isValid)
            #expect(other.runLoop.performAndWait { RunLoop.current.poll(.custom) } == .finished)
        }
        other.stop()
    }
}
