import Reactor
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
        let sleeps: Int
    }

    private static let situations = [
        Situation(
            testDescription: "timers whose windows overlap share one wake-up, and fire by date",
            offsets: [4, 0, 3, 1, 2, 8], tolerance: .milliseconds(10), sleeps: 1),
        Situation(
            testDescription: "timers without tolerance have a wake-up each", offsets: [15, 0, 30],
            tolerance: .zero, sleeps: 3),
        Situation(
            testDescription: "a timer whose window is over does not wait for a later one",
            offsets: [0, 20, 40], tolerance: .milliseconds(8), sleeps: 3),
        // Were the loop to use the tolerance up, the test would last an hour.
        Situation(
            testDescription: "a timer alone is served at its date, whatever its tolerance", offsets: [0],
            tolerance: .seconds(3600), sleeps: 1),
    ]

    @Test(arguments: situations, [false, true])
    func `the loop sleeps once for all timers whose windows overlap`(
        situation: Situation, isSetLater: Bool
    ) throws {
        var outcome: (sleeps: Int, fired: [Int]) = (0, [])
        // A busy machine delays the thread, which then sleeps too rarely, never too often: such a run is repeated.
        for _ in 0..<20 where outcome.sleeps < situation.sleeps {
            outcome = try run(situation, isSetLater: isSetLater)
        }
        #expect(outcome.sleeps == situation.sleeps)
        #expect(outcome.fired == situation.offsets.sorted())
    }

    private func run(_ situation: Situation, isSetLater: Bool) throws -> (sleeps: Int, fired: [Int]) {
        let (loop, sleeps, fired) = (RunLoop.current, Shared(0), Shared<[Int]>([]))
        let observer = RunLoop.Observer(for: .afterWaiting) { _, _ in sleeps.value += 1 }
        loop.add(observer, forMode: .default)
        let origin = Deadline.after(milliseconds: 20)
        for (index, offset) in situation.offsets.enumerated() {
            let tolerance = isSetLater ? .zero : situation.tolerance
            let timer = Timer(fireDate: origin + .milliseconds(offset), tolerance: tolerance) { timer in
                #expect(timer.fireDate <= .now)
                fired.update { $0.append(offset) }
            }
            loop.add(timer, forMode: index % 2 == 0 ? .default : .common)
            if isSetLater { timer.tolerance = situation.tolerance }
        }
        // A timer made after its date is due when it was made: that run has other dates than the test wants.
        let isInTime = Deadline.now < origin
        #expect(loop.run(in: .default) == .finished)
        observer.invalidate()
        return isInTime ? (sleeps.value, fired.value) : (0, [])
    }

    @Test func `firing late by tolerance does not move later dates`() {
        let interval = Duration.milliseconds(10)
        var dates: [Deadline] = []
        Timer.scheduled(every: interval, tolerance: .milliseconds(5)) { timer in
            dates.append(timer.fireDate)
            if dates.count == 4 { timer.invalidate() }
        }
        let companion = Timer.scheduled(every: interval, tolerance: .milliseconds(5)) { timer in
            if dates.count == 4 { timer.invalidate() }
        }
        companion.fireDate = companion.fireDate + .milliseconds(3)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(dates.allSatisfy { ($0 - dates[0]).isMultiple(of: interval) })
    }
}
