import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct ObserverTests {
    @Test func `activities have Core Foundation's bits`() {
        let bits: [(RunLoop.Activities, UInt)] = [
            (.entry, 1), (.beforeTimers, 2), (.beforeSources, 4), (.beforeWaiting, 32), (.afterWaiting, 64),
            (.exit, 128), (.all, 0x0FFF_FFFF),
        ]
        for (activity, value) in bits { #expect(activity.rawValue == value) }
    }

    @Test func `observers are called in their order, equal ones as they were added`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            for (name, order) in [("a", 2), ("b", -1), ("c", 2), ("d", 0)] {
                loop.observe([.entry, .exit], order: order) { trace("\($0) \(name)") }
            }
            loop.poll()
        }
        #expect(
            trace == ["b", "d", "a", "c"].map { "entry \($0)" } + ["b", "d", "a", "c"].map { "exit \($0)" })
    }

    @Test func `observers of the mode and of the common modes are called in one order`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            for (order, mode) in [(1, RunLoop.Mode.common), (0, .default), (1, .default), (0, .common)] {
                loop.observe(.entry, in: mode, order: order) { _ in trace("\(order) \(mode == .common)") }
            }
            loop.poll()
        }
        #expect(trace == ["0 false", "0 true", "1 true", "1 false"])
    }

    @Test(arguments: [
        RunLoop.Activities.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit,
    ])
    func `an observer is called for its activities and for no others`(activity: RunLoop.Activities)
        async throws
    {
        let trace = try await traced { loop, trace in
            loop.observe(activity) { trace("\($0)") }
            Timer.scheduled(after: .milliseconds(1)) { _ in }
            loop.run(in: .default)
        }
        #expect(trace == [activity.description])
    }

    @Test func `entry and exit occur once for each activation, nested ones included`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe([.entry, .exit], in: .common) { trace("\($0)") }
            loop.perform {
                loop.hold(.tracking)
                loop.poll(.tracking)
            }
            for _ in 0..<3 { loop.perform { loop.wakeUp() } }
            loop.poll()
        }
        #expect(trace == ["entry", "entry", "exit", "exit"])
    }

    @Test func `no timer fires between the observers of timers and of sources`() async throws {
        let trace = try await traced { loop, trace in
            loop.observe([.beforeTimers, .beforeSources]) { trace("\($0)") }
            Timer.scheduled(after: .zero) { _ in trace("timer") }
            loop.poll()
        }
        #expect(trace == ["beforeTimers", "beforeSources", "timer"])
    }

    @Test func `an observer that does not repeat is called once, and is valid in that callback`() async throws
    {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            let observer = RunLoop.Observer(repeats: false) { observer, activity in
                trace("\(activity) \(observer.isValid)")
                loop.poll()
            }
            loop.add(observer, forMode: .default)
            for _ in 0..<2 { loop.poll() }
            trace("\(observer.isValid) \(loop.contains(observer, forMode: .default))")
        }
        #expect(trace == ["entry true", "false false"])
    }

    @Test func `an observer that an earlier one removes is still called this once`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            let removed = RunLoop.Observer(for: .beforeTimers, order: 2) { _, _ in trace("removed") }
            loop.add(removed, forMode: .default)
            loop.observe(.beforeTimers, order: 1) { _ in loop.remove(removed, forMode: .default) }
            for _ in 0..<2 { loop.poll() }
        }
        #expect(trace == ["removed"])
    }

    @Test func `an observer that an earlier one invalidates is not called`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            let victim = RunLoop.Observer(for: .beforeTimers, order: 2) { _, _ in trace("victim") }
            loop.add(victim, forMode: .default)
            loop.observe(.beforeTimers, order: 1) { _ in victim.invalidate() }
            loop.poll()
            trace("\(victim.isValid)")
        }
        #expect(trace == ["false"])
    }

    @Test func `an observer that is added during an activity is called at the next`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            let first = RunLoop.Observer(for: .beforeTimers, repeats: false) { _, _ in
                loop.observe([.beforeTimers, .beforeSources], order: 9) { trace("\($0)") }
            }
            loop.add(first, forMode: .default)
            for _ in 0..<2 {
                loop.poll()
                trace("pass")
            }
        }
        #expect(trace == ["beforeSources", "pass", "beforeTimers", "beforeSources", "pass"])
    }

    @Test func `an observer may remove or invalidate itself`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            let removing = RunLoop.Observer { observer, activity in
                trace("removes itself at \(activity)")
                loop.remove(observer, forMode: .default)
            }
            let invalidating = RunLoop.Observer { observer, activity in
                trace("invalidates itself at \(activity)")
                observer.invalidate()
            }
            for observer in [removing, invalidating] { loop.add(observer, forMode: .default) }
            loop.poll()
            trace("\(removing.isValid) \(invalidating.isValid)")
        }
        #expect(trace == ["removes itself at entry", "invalidates itself at entry", "true false"])
    }

    @Test func `an observer belongs to one loop until it is removed`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            let observer = RunLoop.Observer(for: .entry) { _, _ in trace("called") }
            for mode in [RunLoop.Mode.default, .custom] { loop.add(observer, forMode: mode) }
            loop.remove(observer, forMode: .default)
            loop.poll()
            loop.remove(observer, forMode: .custom)
            let carrier = Carrier(observer)
            try onAThread {
                RunLoop.current.hold(.default)
                RunLoop.current.add(carrier.value, forMode: .default)
                RunLoop.current.poll()
                carrier.value.invalidate()
            }
        }
        #expect(trace == ["called"])
    }

    @Test func `an invalid observer is not added`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.default)
            let observer = RunLoop.Observer { _, _ in trace("called") }
            observer.invalidate()
            observer.invalidate()
            loop.add(observer, forMode: .default)
            trace("\(loop.contains(observer, forMode: .default))")
            loop.poll()
        }
        #expect(trace == ["false"])
    }
}
