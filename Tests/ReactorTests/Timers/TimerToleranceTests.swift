import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// How many times the loop sleeps for timers: tolerance is there to make it fewer.
@Suite(.runLoop) struct TimerToleranceTests {
    /// One-shots in the modes of a loop, every other one a common one.
    struct Situation: Sendable, CustomTestStringConvertible {
        let testDescription: String
        /// Their dates, in milliseconds from one date.
        let offsets: [Int]
        let tolerance: Duration
        /// When the loop wakes up.
        let wakeUps: [Int]
    }

    private static let situations = [
        Situation(
            testDescription: "timers whose windows overlap share one wake-up, and fire by date",
            offsets: [4, 0, 3, 1, 2, 8], tolerance: .milliseconds(10), wakeUps: [8]),
        Situation(
            testDescription: "timers without tolerance have a wake-up each", offsets: [15, 0, 30],
            tolerance: .zero, wakeUps: [0, 15, 30]),
        Situation(
            testDescription: "a timer whose window is over does not wait for a later one",
            offsets: [0, 20, 40], tolerance: .milliseconds(8), wakeUps: [0, 20, 40]),
        Situation(
            testDescription: "a timer alone is served at its date, whatever its tolerance", offsets: [0],
            tolerance: .seconds(3600), wakeUps: [0]),
    ]

    @Test(arguments: situations, [false, true])
    func `the loop sleeps once for all timers whose windows overlap`(situation: Situation, isSetLater: Bool) {
        withVirtualTime { _ in
            let (loop, origin) = (RunLoop.current, Deadline.now + .milliseconds(20))
            let fired = Shared<[Int]>([])
            var wakeUps: [Deadline] = []
            loop.observe(.afterWaiting) { _ in wakeUps.append(.now) }
            for (index, offset) in situation.offsets.enumerated() {
                let tolerance = isSetLater ? .zero : situation.tolerance
                let timer = Timer(fireDate: origin + .milliseconds(offset), tolerance: tolerance) { _ in
                    fired.update { $0.append(offset) }
                }
                loop.add(timer, forMode: index % 2 == 0 ? .default : .common)
                if isSetLater { timer.tolerance = situation.tolerance }
            }
            #expect(loop.run(in: .default) == .finished)
            #expect(wakeUps == situation.wakeUps.map { origin + .milliseconds($0) })
            #expect(fired.value == situation.offsets.sorted())
        }
    }

    @Test func `firing late by tolerance does not move later dates`() {
        withVirtualTime { _ in
            let (start, interval) = (Deadline.now, Duration.milliseconds(10))
            var (dates, times): ([Deadline], [Deadline]) = ([], [])
            let timer = Timer.scheduled(every: interval, tolerance: .milliseconds(5)) { timer in
                dates.append(timer.fireDate)
                times.append(.now)
            }
            let companion = Timer.scheduled(every: interval, tolerance: .milliseconds(5)) { companion in
                guard dates.count == 4 else { return }
                for timer in [timer, companion] { timer.invalidate() }
            }
            companion.fireDate = companion.fireDate + .milliseconds(3)
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(dates == (1...4).map { start + interval * $0 })
            #expect(times == dates.map { $0 + .milliseconds(3) })
        }
    }
}
