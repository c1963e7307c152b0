#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct LeewayTests {
    @Test(arguments: [0, 1, 999, 50_000, 1 << 24, (1 << 25) - 1])
    func `a leeway of milliseconds is exact`(nanoseconds: Int64) {
        #expect(Leeway(nanoseconds: nanoseconds).nanoseconds == nanoseconds)
    }

    @Test func `a longer leeway is never longer than asked for, and shorter by less than a millionth`() {
        var generator = SeededGenerator(seed: 55)
        for exponent in 25...62 {
            let range = Int64(1) << Int64(exponent)...Int64.max >> Int64(62 - exponent)
            for asked in [range.lowerBound, range.upperBound, Int64.random(in: range, using: &generator)] {
                let kept = Leeway(nanoseconds: asked).nanoseconds
                #expect(kept <= asked)
                #expect(asked - kept < max(asked / 1_000_000, 1))
            }
        }
    }

    @Test(arguments: [0, 77, Int64.max])
    func `suspending and resuming keeps the leeway`(nanoseconds: Int64) {
        var leeway = Leeway(nanoseconds: nanoseconds)
        let before = leeway
        #expect(!leeway.isSuspended)
        leeway.isSuspended = true
        #expect(leeway.isSuspended)
        #expect(leeway.nanoseconds == before.nanoseconds)
        #expect(leeway == Leeway(nanoseconds: nanoseconds, isSuspended: true))
        leeway.isSuspended = false
        #expect(leeway == before)
    }
}

#endif
