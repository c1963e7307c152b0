import Measuring
import Outcome
import Reactor

enum Timers {
    /// Two timers, one after the other, neither of which is early.
    static func one() {
        let begin = now()
        Timer.scheduled(after: .milliseconds(20)) { _ in
            if now() - begin < 20_000_000 { fail("early") }
            Timer.scheduled(after: .milliseconds(20)) { _ in
                if now() - begin < 40_000_000 { fail("early") }
                finish("2")
            }
        }
    }

    /// Three timers of 2, 3 and 5 ms. None is early, and none fires after its invalidation.
    static func periodic() {
        let begin = now()
        var running = 3
        for milliseconds in [2, 3, 5] {
            var count = 0
            Timer.scheduled(every: .milliseconds(milliseconds)) { timer in
                count += 1
                if count > 20 { fail("fired after its end") }
                if now() - begin < Int64(count * milliseconds) * 1_000_000 { fail("early") }
                guard count == 20 else { return }
                timer.invalidate()
                running -= 1
                if running == 0 { finish("60") }
            }
        }
    }

    /// A handler runs the loop in another mode, in which only that mode's timer fires.
    static func nested() {
        var isNested = false
        var counts = (other: 0, inner: 0)
        let other = Timer.scheduled(every: .milliseconds(2)) { _ in
            if isNested { fail("a timer of another mode fired") }
            counts.other += 1
        }
        Timer.scheduled(after: .milliseconds(20)) { _ in
            isNested = true
            Timer.scheduled(every: .milliseconds(2), forMode: .tracking) { timer in
                counts.inner += 1
                if counts.inner == 5 {
                    timer.invalidate()
                    RunLoop.current.stop()
                }
            }
            RunLoop.current.run(in: .tracking)
            isNested = false
            let before = counts.other
            Timer.scheduled(after: .milliseconds(20)) { _ in
                if counts.inner != 5 || counts.other == before { fail("\(counts)") }
                other.invalidate()
                finish("5")
            }
        }
    }
}
