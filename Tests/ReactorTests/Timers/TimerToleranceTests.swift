import Reactor
import ReactorTesting
import Testing

/// How many times the loop sleeps for timers: tolerance is there to make it fewer.
@Suite(.runLoop) struct TimerToleranceTests {
    struct Outcome: Equatable {
        var sleeps = 0
        var fired: [Int] = []
        var early = 0
    }

    /// Adds one-shots, `offsets` in milliseconds from one date, and returns what happened until all had fired.
    ///
    /// A busy machine delays the thread, which then sleeps too rarely, never too often: such a run is repeated.
    private static func outcome(
        offsets: [Int], tolerance: Duration, sleeps: Int,
        mode: @escaping @Sendable (Int) -> RunLoop.Mode = { _ in .default }
    ) async throws -> Outcome {
        var outcome = Outcome()
        for _ in 0..<20 where outcome.sleeps < sleeps {
            outcome = try await onItsOwnThread { run(offsets: offsets, tolerance: tolerance, mode: mode) }
        }
        return outcome
    }

    private static func run(
        offsets: [Int], tolerance: Duration, mode: (Int) -> RunLoop.Mode
    ) -> Outcome {
        let loop = RunLoop.current
        let outcome = Shared(Outcome())
        loop.observe(.afterWaiting) { _ in outcome.update { $0.sleeps += 1 } }
        let origin = Deadline.after(milliseconds: 50)
        for offset in offsets {
            let timer = Timer(fireDate: origin + .milliseconds(offset), tolerance: tolerance) { timer in
                outcome.update {
                    $0.fired.append(offset)
                    if Deadline.now < timer.fireDate { $0.early += 1 }
                }
            }
            loop.add(timer, forMode: mode(offset))
        }
        // A timer made after its date is due when it was made: that run has other dates than the test wants.
        guard Deadline.now < origin else { return Outcome() }
        #expect(loop.run(in: .default) == .finished)
        return outcome.value
    }

    @Test func `timers whose windows overlap share one wake-up, and fire by date`() async throws {
        let outcome = try await Self.outcome(
            offsets: [4, 0, 3, 1, 2, 8], tolerance: .milliseconds(10), sleeps: 1)
        #expect(outcome == Outcome(sleeps: 1, fired: [0, 1, 2, 3, 4, 8]))
    }

    @Test func `common timers share a wake-up with those of the mode`() async throws {
        let outcome = try await Self.outcome(
            offsets: [0, 1, 2, 3], tolerance: .milliseconds(10), sleeps: 1,
            mode: { $0 % 2 == 0 ? .default : .common })
        #expect(outcome == Outcome(sleeps: 1, fired: [0, 1, 2, 3]))
    }

    @Test func `timers without tolerance have a wake-up each`() async throws {
        let outcome = try await Self.outcome(offsets: [40, 0, 80], tolerance: .zero, sleeps: 3)
        #expect(outcome == Outcome(sleeps: 3, fired: [0, 40, 80]))
    }

    @Test func `a timer whose window is over does not wait for a later one`() async throws {
        let outcome = try await Self.outcome(offsets: [0, 40, 80], tolerance: .milliseconds(10), sleeps: 3)
        #expect(outcome == Outcome(sleeps: 3, fired: [0, 40, 80]))
    }

    @Test func `a timer alone is served at its date, whatever its tolerance`() async throws {
        // Were the loop to use the tolerance up, the test would last an hour.
        let outcome = try await Self.outcome(offsets: [0], tolerance: .seconds(3600), sleeps: 1)
        #expect(outcome == Outcome(sleeps: 1, fired: [0]))
    }

    @Test func `firing late by tolerance does not move later dates`() {
        let loop = RunLoop.current
        let interval = Duration.milliseconds(20)
        var dates: [Deadline] = []
        Timer.scheduled(every: interval, tolerance: .milliseconds(10)) { timer in
            dates.append(timer.fireDate)
            if dates.count == 4 { timer.invalidate() }
        }
        let companion = Timer.scheduled(every: interval, tolerance: .milliseconds(10)) { timer in
            if dates.count == 4 { timer.invalidate() }
        }
        companion.fireDate = companion.fireDate + .milliseconds(6)
        #expect(loop.run(in: .default) == .finished)
        #expect(dates.allSatisfy { ($0 - dates[0]).isMultiple(of: interval) })
    }

    @Test func `tolerance set on a timer that waits counts at the next sleep`() {
        let loop = RunLoop.current
        var sleeps = 0
        loop.observe(.afterWaiting) { _ in sleeps += 1 }
        let date = Deadline.after(milliseconds: 50)
        for offset in [0, 30, 60] {
            let timer = Timer.scheduled(after: .seconds(60)) { _ in }
            timer.fireDate = date + .milliseconds(offset)
            timer.tolerance = .milliseconds(100)
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(sleeps <= 1)
    }
}
