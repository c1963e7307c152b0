import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct DeadlineTests {
    @Test func `durations are added to deadlines and subtracted from them`() {
        let start = Deadline(uptimeNanoseconds: 5_000_000_000)
        #expect(start + .seconds(2) == Deadline(uptimeNanoseconds: 7_000_000_000))
        #expect(start - .seconds(2) == Deadline(uptimeNanoseconds: 3_000_000_000))
        #expect((start - .seconds(1)) - start == .seconds(-1))
        var moved = start
        moved = moved + .seconds(3)
        moved = moved - .seconds(4)
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
        #expect((start + half).uptimeNanoseconds == 101 && (start - half).uptimeNanoseconds == 100)
    }
}

#if DEBUG

@testable import Reactor

@Suite(.runLoop) struct DurationTests {
    /// Around whole numbers of nanoseconds, of what has nine bits less, and of what 64 bits hold.
    private static let marks: [Int128] = [
        0, 1, 512, 1_000_000_000, 9_223_372_036_854_775_807, 9_223_372_037_000_000_000,
        9_223_372_036_854_775_807 << 9, 4_722_366_482_870_000_000_000,
        9_223_372_036_854_775_807 * 1_000_000_000, .max - 1_000_000_000, .min + 2_000_000_000,
    ]

    @Test(arguments: marks)
    func `a duration in nanoseconds is rounded up, and 64 bits long at most`(mark: Int128) {
        for offset in [
            -1_000_000_001, -1_000_000_000, -513, -512, -511, -1, 0, 1, 511, 512, 513, 999_999_999,
        ] as [Int128] {
            for sign in [1, -1] as [Int128] {
                let attoseconds = sign * (mark + offset)
                let (quotient, rest) = attoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
                let expected = Int64(clamping: rest > 0 ? quotient + 1 : quotient)
                #expect(Duration(attoseconds: attoseconds).wholeNanoseconds == expected)
            }
        }
    }
}

@Suite(.runLoop) struct ConditionTests {
    @Test func `a broadcast between the look and the wait is not missed`() {
        let condition = EventCount()
        var lookCount = 0
        condition.wait {
            lookCount += 1
            if lookCount == 1 { condition.broadcast() }
            return lookCount > 1 ? () : nil
        }
        #expect(lookCount == 2)
    }

    @Test func `a wait without a broadcast ends at its deadline and not before`() {
        for deadline in [Deadline.now + .milliseconds(5), .now, .distantPast] {
            let condition = EventCount()
            let result: Void? = condition.wait(until: deadline) { nil }
            #expect(result == nil)
            #expect(Deadline.now >= deadline)
        }
    }

    /// A lost wake-up would stop all three forever.
    @Test func `threads that wait for each other never miss a broadcast`() {
        let (condition, turn, threads) = (EventCount(), Shared(0), 3)
        onThreads(threads) { thread in
            for round in 0..<1_000 {
                condition.wait { turn.value == round * threads + thread ? () : nil }
                turn.update { $0 += 1 }
                condition.broadcast()
            }
        }
        #expect(turn.value == threads * 1_000)
    }
}

@Suite(.runLoop) struct UniqueArrayTests {
    @Test func `elements are released when they are removed, replaced, or left over at the end`() {
        var fates: [Fate] = []
        do {
            var array = UniqueArray<Witness?>()
            for _ in 0..<6 {
                let witness = Witness()
                fates.append(Fate(witness))
                array.append(witness)
            }
            _ = array.removeLast()
            array[0] = nil
            #expect(fates.map(\.isFreed) == [true, false, false, false, false, true])
        }
        #expect(fates.allSatisfy { $0.isFreed })
    }

    @Test func `an element that is not there traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            var array = UniqueArray<Int>()
            array.append(1)
            _ = array[1]
        }
        #expect(result.message.contains("out of bounds"))
    }
}

/// `TimerQueueTests` compares heaps with a model.
@Suite(.runLoop) struct IndexedHeapTests {
    @Test(arguments: [true, false])
    func `removing or moving an element that was removed traps`(moves: Bool) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [moves] in
            var heap = IndexedHeap<Int, Int>()
            let slots = (0..<4).map { heap.insert($0, priority: 0, sequence: UInt64($0), mark: 0) }
            heap.remove(slots[1])
            heap.remove(slots[0])
            if moves { heap.move(slots[0], to: 9, sequence: 9) { $0 = 1 } } else { heap.remove(slots[0]) }
        }
        #expect(result.message.contains("no element"))
    }
}

#endif
