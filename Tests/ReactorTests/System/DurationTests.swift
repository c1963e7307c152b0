#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct DurationTests {
    /// Around whole numbers of nanoseconds, of what has nine bits less, and of what 64 bits hold.
    private static let marks: [Int128] = [
        0, 1, 512, 1_000_000_000, 9_223_372_036_854_775_807, 9_223_372_037_000_000_000,
        9_223_372_036_854_775_807 << 9, 4_722_366_482_870_000_000_000,
        9_223_372_036_854_775_807 * 1_000_000_000,
    ]

    @Test(arguments: marks)
    func `a duration in nanoseconds is rounded up`(mark: Int128) {
        for offset in [
            -1_000_000_001, -1_000_000_000, -513, -512, -511, -1, 0, 1, 511, 512, 513, 999_999_999,
        ] as [Int128] {
            for sign in [1, -1] as [Int128] {
                let attoseconds = sign * mark + offset
                let whole = Duration(attoseconds: attoseconds).wholeNanoseconds
                let (quotient, rest) = attoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
                #expect(whole == Int64(clamping: rest > 0 ? quotient + 1 : quotient))
            }
        }
    }

    @Test func `the longest durations are as long as 64 bits of nanoseconds`() {
        #expect(Duration(attoseconds: .max).wholeNanoseconds == .max)
        #expect(Duration(attoseconds: .min).wholeNanoseconds == .min)
    }
}

#endif
