import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct DeadlineTests {
    @Test func `durations are added to deadlines and subtracted from them`() {
        let start = Deadline(uptimeNanoseconds: 5_000_000_000)
        #expect(start + .seconds(2) == Deadline(uptimeNanoseconds: 7_000_000_000))
        #expect(start - .seconds(2) == Deadline(uptimeNanoseconds: 3_000_000_000))
        #expect(start - (start - .milliseconds(1)) == .milliseconds(1))
        #expect((start - .seconds(1)) - start == .seconds(-1))
        var moved = start
        moved += .seconds(3)
        #expect(moved.uptimeNanoseconds == 8_000_000_000)
        moved -= .seconds(4)
        #expect(moved.uptimeNanoseconds == 4_000_000_000)
    }

    @Test func `the distant future and past do not move, and sums saturate`() {
        for far in [Deadline.distantFuture, .distantPast] {
            #expect(far + .seconds(1) == far && far - .seconds(1) == far)
        }
        #expect(Deadline(uptimeNanoseconds: .max - 1) + .seconds(1) == .distantFuture)
        #expect(Deadline(uptimeNanoseconds: .min + 1) - .seconds(1) == .distantPast)
    }

    @Test func `a part of a nanosecond never makes a deadline early`() {
        let start = Deadline(uptimeNanoseconds: 100)
        let half = Duration(secondsComponent: 0, attosecondsComponent: 500_000_000)
        #expect((start + half).uptimeNanoseconds == 101)
        #expect((start - half).uptimeNanoseconds == 100)
    }
}
