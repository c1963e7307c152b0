import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct LimitDateTests {
    @Test func `the limit date of an empty mode is nil`() async throws {
        let date = try await onItsOwnThread { RunLoop.current.limitDate(forMode: .default) }
        #expect(date == nil)
    }

    @Test func `the limit date is that of the earliest timer, whatever its tolerance`() async throws {
        let (date, expected) = try await onItsOwnThread {
            let loop = RunLoop.current
            loop.hold(.default)
            Timer.scheduled(after: .seconds(200), forMode: .common) { _ in }
            Timer.scheduled(after: .seconds(50), forMode: .custom) { _ in }
            let timer = Timer.scheduled(after: .seconds(100), tolerance: .seconds(30)) { _ in }
            return (loop.limitDate(forMode: .default), timer.fireDate)
        }
        #expect(date == expected)
    }

    @Test func `the limit date of a mode without timers is the distant future`() async throws {
        let date = try await onItsOwnThread {
            RunLoop.current.hold(.default)
            return RunLoop.current.limitDate(forMode: .default)
        }
        #expect(date == .distantFuture)
    }

    @Test func `asking for the limit date polls once, and is nil if that leaves nothing`() async throws {
        let trace = try await traced { loop, trace in
            Timer.scheduled(after: .zero) { _ in trace("timer") }
            trace("\(loop.limitDate(forMode: .default) == nil)")
        }
        #expect(trace == ["timer", "true"])
    }

    @Test func `accepting input returns after a source`() async throws {
        let trace = try await traced { loop, trace in
            let source = RunLoop.Source { trace("source") }
            loop.add(source, forMode: .default)
            source.signal()
            loop.acceptInput(forMode: .default, before: .distantFuture)
            trace("returned")
        }
        #expect(trace == ["source", "returned"])
    }

    @Test func `accepting input with only a timer lasts until that has fired`() async throws {
        let trace = try await traced { loop, trace in
            Timer.scheduled(after: .milliseconds(2)) { _ in trace("timer") }
            loop.acceptInput(forMode: .default, before: .minutesAway)
            trace("returned")
        }
        #expect(trace == ["timer", "returned"])
    }

    @Test func `another thread's loop cannot be run, and has no limit date`() async throws {
        let thread = try RunLoopThread(name: "other")
        let loop = thread.runLoop
        try await onItsOwnThread {
            #expect(!loop.run(mode: .default, before: .distantFuture))
            #expect(loop.limitDate(forMode: .default) == nil)
            loop.run()
            loop.run(until: .distantFuture)
            loop.acceptInput(forMode: .default, before: .distantFuture)
        }
        thread.stop()
    }
}
