import Glibc
import Reactor
import ReactorTesting
import Testing

/// Timers that another thread takes out of a loop, and puts back before the loop has looked.
@Suite(.runLoop) struct TimerReturnTests {
    @Test func `a timer moved to another mode fires only there, and once`() async throws {
        let trace = try await traced { loop, trace in
            let timer = Timer(fireDate: .now) { _ in
                trace(loop.currentMode == .custom ? "custom" : "default")
            }
            loop.add(timer, forMode: .default)
            onThreads(1) { _ in
                loop.remove(timer, forMode: .default)
                loop.add(timer, forMode: .custom)
            }
            for mode in [RunLoop.Mode.default, .custom, .default, .custom] { loop.poll(mode) }
            #expect(loop.poll() == .finished)
        }
        #expect(trace == ["custom"])
    }

    @Test func `a timer removed and added again during a batch waits for the next pass`() async throws {
        let trace = try await traced { loop, trace in
            let other = Timer(fireDate: .distantFuture) { _ in trace("other") }
            let first = Timer(fireDate: .now) { _ in
                trace("first")
                onThreads(1) { _ in
                    loop.remove(other, forMode: .default)
                    loop.add(other, forMode: .default)
                }
            }
            other.fireDate = .now
            for timer in [first, other] { loop.add(timer, forMode: .default) }
            loop.poll()
            trace("next pass")
            loop.poll()
        }
        #expect(trace == ["first", "next pass", "other"])
    }

    @Test func `a timer removed and added again during its callback is not called within it`() async throws {
        let trace = try await traced { loop, trace in
            let timer = Timer(interval: .seconds(60), repeats: true) { timer in
                trace("begins")
                onThreads(1) { _ in
                    loop.remove(timer, forMode: .default)
                    loop.add(timer, forMode: .default)
                    timer.fireDate = .distantPast
                }
                loop.poll()
                trace("ends")
            }
            loop.add(timer, forMode: .default)
            timer.fireDate = .now
            loop.poll()
            timer.invalidate()
            #expect(loop.poll() == .finished)
        }
        #expect(trace == ["begins", "ends"])
    }

    @Test func `a timer fires in its new loop while the old one is too busy to see it go`() async throws {
        let busy = try RunLoopThread(name: "busy")
        let (begun, over) = (Answer<Void>(), Answer<Void>())
        let timer = Timer(fireDate: .distantFuture) { _ in }
        busy.runLoop.add(timer, forMode: .default)
        busy.runLoop.perform {
            begun.give(())
            over.wait()
        }
        begun.wait()
        try await onItsOwnThread {
            busy.runLoop.remove(timer, forMode: .default)
            RunLoop.current.add(timer, forMode: .default)
            timer.fireDate = .now
            RunLoop.current.poll()
            #expect(!timer.isValid)
        }
        over.give(())
        #expect(busy.runLoop.performAndWait { RunLoop.current.poll(.custom) } == .finished)
        busy.stop()
    }

    @Test func `a timer that another thread removes from its loop leaves all its modes`() {
        let loop = RunLoop.current
        let modes: [RunLoop.Mode] = [.custom, .modalPanel, .common]
        let timers = (0..<2).map { _ in Timer(fireDate: .now, tolerance: .seconds(1)) { _ in } }
        for timer in timers { for mode in modes { loop.add(timer, forMode: mode) } }
        onThreads(1) { _ in
            timers[0].invalidate()
            for mode in modes { loop.remove(timers[1], forMode: mode) }
        }
        for mode in [RunLoop.Mode.custom, .modalPanel, .default, .tracking] {
            #expect(loop.poll(mode) == .finished)
        }
        #expect(timers.map(\.isValid) == [false, true])
        #expect(timers[1].tolerance == .seconds(1))
    }

    @Test func `a timer fires wherever threads put it last, however often they change their minds`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let timers = (0..<8).map { index in Timer(fireDate: .now) { _ in trace("\(index)") } }
            let modes: [RunLoop.Mode] = [.default, .custom, .common, .modalPanel]
            onThreads(4) { thread in
                for round in 0..<400 {
                    let timer = timers[(thread + round) % timers.count]
                    let mode = modes[(thread + round / 8) % modes.count]
                    if round % 3 == 0 {
                        loop.remove(timer, forMode: mode)
                    } else {
                        loop.add(timer, forMode: mode)
                    }
                }
            }
            for timer in timers { loop.add(timer, forMode: .custom) }
            loop.poll(.custom)
            for mode in modes where mode != .common { #expect(loop.poll(mode) == .finished) }
        }
        #expect(trace.sorted() == (0..<8).map { "\($0)" })
    }
}
