#if DEBUG

import ReactorTestSupport
import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct TimerQueueTests {
    @Test(arguments: [1, 2] as [UInt64], [0..<400, 0..<3] as [Range<Int64>])
    func `the queue behaves as a sorted list, equal dates in the order of adding`(
        seed: UInt64, dates: Range<Int64>
    ) {
        let pair = QueueAndModel(seed: seed, dates: dates, tolerances: 0..<40)
        for _ in 0..<Depth.of(full: 15_000, quick: 1_500) {
            pair.step()
            pair.compare()
        }
        #expect(pair.drain() == pair.drainModel())
    }

    @Test func `more windows than a search visits make no timer late`() {
        var generator = SeededGenerator(seed: 21)
        for count in [127, 128, 129, 200, 1_000] {
            var queue = TimerQueue<Int>()
            var latest = Int64.max
            var dates: [Int64] = []
            for index in 0..<count {
                let date = Int64.random(in: 1_000..<2_000, using: &generator)
                let tolerance = Int64.random(in: 1_000..<3_000, using: &generator)
                _ = queue.insert(index, date: date, tolerance: tolerance, sequence: UInt64(index))
                dates.append(date)
                latest = min(latest, date + tolerance)
            }
            let wake = queue.wakeDate(leastTolerance: 0)!
            #expect(wake <= latest)
            #expect(dates.contains(wake))
            if count < 128 { #expect(wake == dates.filter { $0 <= latest }.max()) }
        }
    }

    @Test func `a timer without tolerance among more windows than a search visits is on time`() {
        for count in [200, 1_000] {
            var queue = TimerQueue<Int>()
            for index in 0..<count {
                let isStrict = index == count - 1
                _ = queue.insert(
                    index, date: isStrict ? 50 : Int64(index), tolerance: isStrict ? 0 : 5_000,
                    sequence: UInt64(index))
            }
            #expect(queue.wakeDate(leastTolerance: 0)! <= 50)
        }
    }

    @Test func `two queues share a wake-up as one would`() {
        var generator = SeededGenerator(seed: 34)
        for _ in 0..<500 {
            var left = TimerQueue<Int>()
            var right = TimerQueue<Int>()
            var both = TimerQueue<Int>()
            for index in 0..<Int.random(in: 0..<12, using: &generator) {
                let date = Int64.random(in: 0..<50, using: &generator)
                let tolerance = Int64.random(in: 0..<20, using: &generator)
                if Bool.random(using: &generator) {
                    _ = left.insert(index, date: date, tolerance: tolerance, sequence: UInt64(index))
                } else {
                    _ = right.insert(index, date: date, tolerance: tolerance, sequence: UInt64(index))
                }
                _ = both.insert(index, date: date, tolerance: tolerance, sequence: UInt64(index))
            }
            let wake = both.wakeDate(leastTolerance: 3)
            #expect(left.wakeDate(leastTolerance: 3, with: right) == wake)
            #expect(right.wakeDate(leastTolerance: 3, with: left) == wake)
        }
    }

    @Test func `dates and tolerances at the clock's end do not overflow`() {
        var queue = TimerQueue<String>()
        _ = queue.insert("end", date: .max, tolerance: .max, sequence: 1)
        #expect(queue.wakeDate(leastTolerance: .max) == .max)
        _ = queue.insert("start", date: .min, tolerance: 0, sequence: 2)
        #expect(queue.wakeDate(leastTolerance: 50) == .min)
        #expect(queue.firstDue(at: .min, addedBefore: .max)?.priority == .min)
    }

    @Test func `an element is released when it is removed, and its slot is reused`() {
        var queue = TimerQueue<Witness>()
        var witness: Witness? = Witness()
        weak let weakWitness = witness
        let slot = queue.insert(witness!, date: 1, tolerance: 0, sequence: 1)
        witness = nil
        #expect(weakWitness != nil)
        queue.remove(slot)
        #expect(weakWitness == nil)
        #expect(queue.insert(Witness(), date: 1, tolerance: 0, sequence: 2) == slot)
    }

    // MARK: Leeways

    @Test func `a leeway is never longer than asked for, exact for milliseconds, and suspending keeps it`() {
        var generator = SeededGenerator(seed: 55)
        var asked: [Int64] = [0, 1, 999, 50_000, 1 << 24, (1 << 25) - 1]
        let exact = asked.count
        for exponent in 25...62 {
            let range = Int64(1) << Int64(exponent)...Int64.max >> Int64(62 - exponent)
            asked += [range.lowerBound, range.upperBound, Int64.random(in: range, using: &generator)]
        }
        for (index, nanoseconds) in asked.enumerated() {
            var leeway = Leeway(nanoseconds: nanoseconds)
            let kept = leeway.nanoseconds
            #expect(kept <= nanoseconds)
            #expect(nanoseconds - kept < (index < exact ? 1 : max(nanoseconds / 1_000_000, 1)))
            leeway.isSuspended = true
            #expect(leeway.isSuspended && leeway.nanoseconds == kept)
            #expect(leeway == Leeway(nanoseconds: nanoseconds, isSuspended: true))
            leeway.isSuspended = false
            #expect(leeway == Leeway(nanoseconds: nanoseconds))
        }
    }
}

#endif
