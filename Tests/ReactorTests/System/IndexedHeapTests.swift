#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct IndexedHeapTests {
    private struct Entry {
        let slot: Int32
        let element: Int
        var priority: Int64
        var sequence: UInt64
        var mark: Int
    }

    @Test(arguments: [(UInt64(1), Int64(1_000)), (2, 10), (3, 1)])
    func `elements come out as from a sorted list, however they are added, moved and removed`(
        seed: UInt64, priorities: Int64
    ) {
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

    @Test func `removing an element that was removed traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            var heap = IndexedHeap<Int, Int>()
            let slots = (0..<4).map { heap.insert($0, priority: 0, sequence: UInt64($0), mark: 0) }
            heap.remove(slots[1])
            heap.remove(slots[0])
            heap.remove(slots[0])
        }
        #expect(result.message.contains("the slot has no element"))
    }

    @Test func `moving an element that was removed traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            var heap = IndexedHeap<Int, Int>()
            let slots = (0..<4).map { heap.insert($0, priority: 0, sequence: UInt64($0), mark: 0) }
            heap.remove(slots[1])
            heap.remove(slots[0])
            heap.move(slots[0], to: 9, sequence: 9) { $0 = 1 }
        }
        #expect(result.message.contains("the slot has no element"))
    }
}

#endif
