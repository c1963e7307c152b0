import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct ObserverTests {
    private let loop = RunLoop.current
    private let trace = Trace()

    @Test func `observers are called in their order, common ones among them, equal ones as they were added`()
    {
        loop.hold(.default)
        let places: [(String, Int, RunLoop.Mode)] = [
            ("a", 2, .common), ("b", -1, .default), ("c", 2, .default), ("d", 0, .common), ("e", 0, .default),
        ]
        for (name, order, mode) in places {
            loop.observe([.entry, .exit], in: mode, order: order) { trace("\($0) \(name)") }
        }
        loop.poll()
        let names = ["b", "d", "e", "a", "c"]
        #expect(trace.all == names.map { "entry \($0)" } + names.map { "exit \($0)" })
    }

    @Test(arguments: [
        RunLoop.Activities.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit,
    ])
    func `an observer is called for its activities and for no others`(activity: RunLoop.Activities) {
        loop.observe(activity) { trace("\($0)") }
        Timer.scheduled(after: .milliseconds(1)) { _ in }
        loop.run(in: .default)
        #expect(trace.all == [activity.description])
    }

    @Test func `an observer that does not repeat is called once, and is valid in that callback`() {
        loop.hold(.default)
        let observer = RunLoop.Observer(repeats: false) { observer, activity in
            trace("\(activity) \(observer.isValid)")
            loop.poll()
        }
        loop.add(observer, forMode: .default)
        for _ in 0..<2 { loop.poll() }
        #expect(trace.all == ["entry true"])
        #expect(!observer.isValid && !loop.contains(observer, forMode: .default))
    }

    @Test
    func `an observer that an earlier one removes is still called this once, an invalidated one is not`() {
        loop.hold(.default)
        let victims = ["removed", "invalidated"].map { name in
            RunLoop.Observer(for: .beforeTimers, order: 2) { _, _ in trace(name) }
        }
        for victim in victims { loop.add(victim, forMode: .default) }
        loop.observe(.beforeTimers, order: 1) { _ in
            loop.remove(victims[0], forMode: .default)
            victims[1].invalidate()
        }
        for _ in 0..<2 { loop.poll() }
        #expect(trace.all == ["removed"])
        #expect(victims.map(\.isValid) == [true, false])
    }

    @Test func `an observer that is added during an activity is called at the next`() {
        loop.hold(.default)
        loop.observeOnce(.beforeTimers) {
            loop.observe([.beforeTimers, .beforeSources], order: 9) { trace("\($0)") }
        }
        for _ in 0..<2 {
            loop.poll()
            trace("pass")
        }
        #expect(trace.all == ["beforeSources", "pass", "beforeTimers", "beforeSources", "pass"])
    }
}
