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
        moved += .seconds(3)
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
        let condition = Condition()
        let generation = condition.generation
        condition.broadcast()
        #expect(condition.wait(after: generation))
    }

    @Test func `a wait without a broadcast ends at its deadline and not before`() {
        for deadline in [Deadline.now + .milliseconds(5), .now, .distantPast] {
            let condition = Condition()
            #expect(!condition.wait(after: condition.generation, until: deadline))
            #expect(Deadline.now >= deadline)
        }
    }

    /// A lost wake-up would stop all three forever.
    @Test func `threads that wait for each other never miss a broadcast`() {
        let (condition, turn, threads) = (Condition(), Shared(0), 3)
        onThreads(threads) { thread in
            for round in 0..<1_000 {
                while case let generation = condition.generation, turn.value != round * threads + thread {
                    condition.wait(after: generation)
                }
                turn.update { $0 += 1 }
                condition.broadcast()
            }
        }
        #expect(turn.value == threads * 1_000)
    }
}

@Suite(.runLoop) struct UniqueArrayTests {
    @Test func `elements keep their order, and an emptied array can be used again`() {
        var array = UniqueArray<String>()
        for round in ["first", "second"] {
            for number in 0..<1000 { array.append("\(round) \(number)") }
            array[7] = "another"
            let last = array.removeLast()
            let rest = array.indices.map { array[$0] }
            #expect(last == "\(round) 999")
            #expect(rest == (0..<999).map { $0 == 7 ? "another" : "\(round) \($0)" })
            while !array.isEmpty { _ = array.removeLast() }
            let first = array.first
            #expect(first == nil)
        }
    }

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

@Suite(.runLoop) struct IndexedHeapTests {
    private struct Entry {
        let slot: Int32
        let element: Int
        var priority: Int64
        var sequence: UInt64
        var mark: Int
    }

    @Test(arguments: [(UInt64(1), Int64(1_000)), (2, 10), (3, 1)])
    func `elements come out as from a sorted list`(seed: UInt64, priorities: Int64) {
        var heap = IndexedHeap<Int, Int>()
        var model: [Entry] = []
        var generator = SeededGenerator(seed: seed)
        for step in 1...1_500 {
            let (priority, sequence) = (Int64.random(in: 0..<priorities, using: &generator), UInt64(step))
            let index = model.indices.randomElement(using: &generator)
            switch (Int.random(in: 0..<4, using: &generator), index) {
            case (0, .some(let index)):
                let entry = model.remove(at: index)
                let removed = heap.remove(entry.slot)
                check(removed == entry.element, "the removed element")
            case (1, .some(let index)):
                heap.move(model[index].slot, to: priority, sequence: sequence) { $0 = step }
                if model[index].priority != priority { model[index].sequence = sequence }
                (model[index].priority, model[index].mark) = (priority, step)
            default:
                let slot = heap.insert(step, priority: priority, sequence: sequence, mark: -step)
                model.append(
                    Entry(slot: slot, element: step, priority: priority, sequence: sequence, mark: -step))
            }
            compare(heap, model, upTo: priority)
        }
    }

    private func compare(_ heap: borrowing IndexedHeap<Int, Int>, _ model: [Entry], upTo limit: Int64) {
        func first(where isWanted: (Entry) -> Bool) -> Entry? {
            model.filter(isWanted).min { ($0.priority, $0.sequence) < ($1.priority, $1.sequence) }
        }
        let (found, wanted) = (
            heap.first(upTo: limit) { $0.mark.isMultiple(of: 3) },
            first { $0.priority <= limit && $0.mark.isMultiple(of: 3) }
        )
        check(heap.count == model.count, "the count")
        check(heap.first?.slot == first { _ in true }?.slot, "the first element")
        check(found?.slot == wanted?.slot && found?.mark == wanted?.mark, "the first element that is wanted")
        check(found.flatMap { heap[$0.slot] } == wanted?.element, "its element")
    }

    /// As `#expect`, which is slow for thousands of checks.
    private func check(_ isRight: Bool, _ what: Comment) {
        if !isRight { Issue.record(what) }
    }

    @Test func `an element is released when it is removed, and its slot is reused`() {
        var heap = IndexedHeap<Witness, Void>()
        let (fate, slot) = {
            let witness = Witness()
            return (Fate(witness), heap.insert(witness, priority: 1, sequence: 1, mark: ()))
        }()
        #expect(!fate.isFreed)
        heap.remove(slot)
        #expect(fate.isFreed)
        let next = heap.insert(Witness(), priority: 1, sequence: 2, mark: ())
        #expect(next == slot)
    }

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
