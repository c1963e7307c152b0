import Reactor
import ReactorTestSupport
import Testing

@Suite struct BackoffTests {
    /// The shortest and the longest of many delays, each of which `next` takes from new delays.
    private func range(_ next: (inout Backoff) -> Duration) -> ClosedRange<Duration> {
        let delays = (0..<1000).map { _ in
            var backoff = Backoff(first: .seconds(2), limit: .seconds(10))
            return next(&backoff)
        }
        return delays.min()!...delays.max()!
    }

    @Test func `a first delay is random, between zero and its bound`() {
        let range = range { $0.nextDelay() }
        #expect(range.lowerBound >= .zero && range.upperBound <= .seconds(2))
        #expect(range.lowerBound < .seconds(1) && range.upperBound > .seconds(1))
    }

    @Test func `bounds grow by the factor up to the limit, and begin anew after a reset`() {
        let second = range { backoff in
            _ = backoff.nextDelay()
            return backoff.nextDelay()
        }
        #expect(second.upperBound > .seconds(2) && second.upperBound <= .seconds(4))
        let tenth = range { backoff in
            for _ in 1..<10 { _ = backoff.nextDelay() }
            return backoff.nextDelay()
        }
        #expect(tenth.upperBound > .seconds(5) && tenth.upperBound <= .seconds(10))
        let anew = range { backoff in
            for _ in 1..<10 { _ = backoff.nextDelay() }
            backoff.reset()
            return backoff.nextDelay()
        }
        #expect(anew.upperBound <= .seconds(2))
    }

    @Test func `the longest durations are a limit, and their delays fit`() {
        let most = Duration(attoseconds: .max)
        var backoff = Backoff(first: most, limit: most, factor: 1e300)
        for _ in 0..<10 { #expect((.zero...most).contains(backoff.nextDelay())) }
    }

    @Test func `delays that cannot be are refused with a message`() async {
        let first = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Backoff(first: .zero)
        }
        #expect(first.message.contains("must be above zero (it is 0.0 seconds)"))
        let limit = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Backoff(first: .seconds(2), limit: .seconds(1))
        }
        #expect(limit.message.contains("must be at least its first delay (it is 1.0 seconds)"))
        let factor = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Backoff(factor: .nan)
        }
        #expect(factor.message.contains("must be at least 1, and finite (it is nan)"))
    }
}
