import Reactor
import ReactorTesting
import Testing

/// Several timers that are due in one pass.
@Suite(.runLoop) struct TimerBatchTests {
    /// One-shots of dates that have passed when this returns, `offsets` in microseconds after the same origin.
    private static func scheduleDue(_ offsets: [Int], _ trace: Trace) -> [Timer] {
        while true {
            let origin = Deadline.after(milliseconds: 5)
            let timers = offsets.enumerated().map { index, offset in
                let timer = Timer(fireDate: origin + .microseconds(offset)) { _ in trace("\(index)") }
                RunLoop.current.add(timer, forMode: index % 2 == 0 ? .default : .common)
                return timer
            }
            // One made with a past date would be due since it was made.
            if Deadline.now < origin {
                (origin + .microseconds(offsets.max() ?? 0)).busyWait()
                return timers
            }
            for timer in timers { timer.invalidate() }
        }
    }

    @Test func `timers fire by date, equal dates in the order of adding`() async throws {
        let trace = try await traced { loop, trace in
            _ = Self.scheduleDue([30, 10, 20, 10, 0, 20, 10, 0, 30], trace)
            loop.poll()
        }
        #expect(trace == ["4", "7", "1", "3", "6", "2", "5", "0", "8"])
    }

    @Test func `adding a timer once more leaves its place among equal dates`() async throws {
        let trace = try await traced { loop, trace in
            let timers = Self.scheduleDue([0, 0, 0], trace)
            loop.add(timers[0], forMode: .default)
            timers[0].tolerance = .milliseconds(1)
            timers[0].tolerance = .zero
            loop.poll()
        }
        #expect(trace == ["0", "1", "2"])
    }

    @Test func `a timer that an earlier one of the batch changes still fires in it if it is due`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let other = Timer(fireDate: .distantFuture) { _ in trace("other") }
            let first = Timer(fireDate: .now) { _ in
                other.tolerance = .milliseconds(3)
                loop.add(other, forMode: .default)
                trace("first")
            }
            other.fireDate = .now
            loop.add(other, forMode: .default)
            loop.add(first, forMode: .default)
            loop.poll()
        }
        #expect(trace == ["first", "other"])
    }

    @Test func `a timer that an earlier one invalidates, removes or moves does not fire`() async throws {
        let trace = try await traced { loop, trace in
            let names = ["invalidated", "removed", "moved", "left alone"]
            let victims = names.map { name in
                Timer(fireDate: .distantFuture) { _ in trace(name) }
            }
            let first = Timer(fireDate: .now) { _ in
                victims[0].invalidate()
                loop.remove(victims[1], forMode: .default)
                victims[2].fireDate = .distantFuture
            }
            for victim in victims { victim.fireDate = .now }
            for timer in victims + [first] { loop.add(timer, forMode: .default) }
            loop.poll()
            #expect(victims.map(\.isValid) == [false, true, true, false])
            victims[2].invalidate()
        }
        #expect(trace == ["left alone"])
    }

    @Test func `a timer added by a timer waits for the next pass, however old its date`() async throws {
        let trace = try await traced { loop, trace in
            let added = Timer(fireDate: .now - .seconds(1)) { _ in trace("added") }
            Timer.scheduled(after: .zero) { _ in
                trace("first")
                loop.add(added, forMode: .default)
            }
            loop.poll()
            trace("next pass")
            loop.poll()
        }
        #expect(trace == ["first", "next pass", "added"])
    }

    @Test func `a repeating timer fires once in a pass, however short its interval`() async throws {
        let trace = try await traced { loop, trace in
            let timer = Timer.scheduled(every: .zero) { timer in
                trace("fired")
                (timer.fireDate + .milliseconds(1)).busyWait()
            }
            timer.fireDate.busyWait()
            loop.poll()
            timer.invalidate()
        }
        #expect(trace == ["fired"])
    }

    @Test func `a nested activation fires the other timers, and the outer pass does not repeat them`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let dates = Deadline.now
            let outer = Timer(fireDate: dates) { _ in
                trace("outer begins")
                loop.poll()
                loop.poll()
                trace("outer ends")
            }
            loop.add(outer, forMode: .default)
            for name in ["second", "third"] {
                loop.add(Timer(fireDate: .now) { _ in trace(name) }, forMode: .default)
            }
            Deadline.now.busyWait()
            loop.poll()
        }
        #expect(trace == ["outer begins", "second", "third", "outer ends"])
    }

    @Test func `a timer does not fire within its own callback, and does not wake a nested wait`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            var (depth, calls, passes) = (0, 0, 0)
            loop.observe(.beforeTimers) { _ in if depth > 0 { passes += 1 } }
            let interval = Duration.milliseconds(1)
            let timer = Timer.scheduled(every: interval) { _ in
                #expect(depth == 0)
                (depth, calls) = (depth + 1, calls + 1)
                #expect(loop.run(in: .default, until: .after(milliseconds: 15)) == .timedOut)
                depth -= 1
                loop.stop()
            }
            let first = timer.fireDate
            #expect(loop.run(in: .default) == .stopped)
            #expect(calls == 1)
            #expect(passes <= 3)
            #expect((timer.fireDate - first).isMultiple(of: interval))
            #expect(timer.fireDate >= first + .milliseconds(15))
            timer.invalidate()
        }
    }

    @Test func `a timer in its callback keeps the mode of a nested activation from being empty`() async throws
    {
        try await onItsOwnThread {
            var result: RunLoop.RunResult?
            Timer.scheduled(after: .zero) { _ in
                result = RunLoop.current.run(in: .default, until: .after(milliseconds: 2))
            }
            RunLoop.current.run(in: .default)
            #expect(result == .timedOut)
        }
    }

    @Test func `callbacks of a chain of timers nest, each is called once`() async throws {
        let trace = try await traced { loop, trace in
            let depth = 20
            for index in 0..<depth {
                Timer.scheduled(after: .zero) { _ in
                    trace("\(index)")
                    loop.poll()
                    trace("-\(index)")
                }
            }
            Deadline.now.busyWait()
            loop.poll()
        }
        #expect(trace == (0..<20).map { "\($0)" } + (0..<20).reversed().map { "-\($0)" })
    }
}
