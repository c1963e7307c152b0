#if DEBUG

import Testing

@testable import Reactor
import ReactorTestSupport
import ReactorTesting

/// A timer queue and a naive model of it; random steps change both alike.
final class QueueAndModel {
    struct Entry {
        let element: Int
        let slot: TimerQueue<Int>.Slot
        var date: Int64
        var tolerance: Int64
        var sequence: UInt64
        var isSuspended = false
    }

    private(set) var queue = TimerQueue<Int>()
    private var model: [Entry] = []
    private var generator: SeededGenerator
    private var sequence: UInt64 = 0
    private let dates: Range<Int64>
    private let tolerances: Range<Int64>

    init(seed: UInt64, dates: Range<Int64>, tolerances: Range<Int64>) {
        generator = SeededGenerator(seed: seed)
        self.dates = dates
        self.tolerances = tolerances
    }

    func step() {
        sequence += 1
        let kind = Int.random(in: 0..<10, using: &generator)
        guard let index = model.indices.randomElement(using: &generator), kind > 2 else { return insert() }
        switch kind {
        case 3...5: remove(at: index)
        case 6: move(at: index)
        case 7: resume(at: index)
        case 8: suspend(at: index)
        default: suspendFirstDue()
        }
    }

    private func insert() {
        let (date, tolerance) = (randomDate(), randomTolerance())
        let slot = queue.insert(Int(sequence), date: date, tolerance: tolerance, sequence: sequence)
        check(!model.contains { $0.slot == slot }, "a free slot")
        model.append(
            Entry(element: Int(sequence), slot: slot, date: date, tolerance: tolerance, sequence: sequence))
    }

    private func remove(at index: Int) {
        let entry = model.remove(at: index)
        check(queue.remove(entry.slot) == entry.element, "the removed element")
    }

    private func move(at index: Int) {
        let (date, tolerance) = (randomDate(), randomTolerance())
        queue.move(
            model[index].slot, date: date, tolerance: tolerance, isSuspended: model[index].isSuspended,
            sequence: sequence)
        if model[index].date != date { model[index].sequence = sequence }
        (model[index].date, model[index].tolerance) = (date, tolerance)
    }

    private func suspend(at index: Int) {
        model[index].isSuspended = true
        queue.suspend(model[index].slot)
    }

    private func resume(at index: Int) {
        let date = Bool.random(using: &generator) ? model[index].date : randomDate()
        queue.resume(model[index].slot, date: date, sequence: sequence)
        if model[index].date != date { model[index].sequence = sequence }
        model[index].date = date
        model[index].isSuspended = false
    }

    private func suspendFirstDue() {
        let now = randomDate()
        let due = active.filter { $0.date <= now }.min(by: precedes)
        let found = queue.suspendFirstDue(at: now, addedBefore: .max)
        check(found?.0 == due?.element && found?.1 == due?.slot, "the suspended element")
        guard let index = model.firstIndex(where: { $0.slot == due?.slot }) else { return }
        model[index].isSuspended = true
    }

    func compare() {
        let now = randomDate()
        let limit = UInt64.random(in: 0...sequence + 1, using: &generator)
        let due = active.filter { $0.date <= now && $0.sequence < limit }.min(by: precedes)
        let found = queue.firstDue(at: now, addedBefore: limit)
        check(found?.slot == due?.slot && found?.priority == due?.date, "the first that is due")
        if let found { check(queue[found.slot] == due?.element, "its element") }
        check(queue.earliestDate == active.map(\.date).min(), "the earliest date")
        check(queue.count == model.count && queue.isEmpty == model.isEmpty, "the count")
        compareWakeDate(randomTolerance())
        guard sequence % 64 == 0 else { return }
        check(queue.elements.sorted() == model.map(\.element).sorted(), "the elements")
    }

    private func compareWakeDate(_ least: Int64) {
        let limit = active.map { $0.date + max($0.tolerance, least) }.min()
        let wake = queue.wakeDate(leastTolerance: least)
        guard let limit, let wake else { return check(wake == nil && limit == nil, "nothing to wake for") }
        check(wake <= limit, "a wake-up that is not too late")
        check(active.contains { $0.date == wake }, "a wake-up at an element's date")
        // More than that may exceed what one question looks at.
        guard model.count <= 100 else { return }
        check(wake == active.map(\.date).filter { $0 <= limit }.max(), "the wake-up that most share")
    }

    /// As `#expect`, which is slow for what is asked some hundred thousand times.
    private func check(_ isRight: Bool, _ what: Comment) {
        if !isRight { Issue.record(what) }
    }

    /// Removes everything by date; suspended elements are left out.
    func drain() -> [Int] {
        var elements: [Int] = []
        while let first = queue.firstDue(at: .max, addedBefore: .max) {
            elements.append(queue.remove(first.slot)!)
        }
        return elements
    }

    func drainModel() -> [Int] { active.sorted(by: precedes).map(\.element) }

    private var active: [Entry] { model.filter { !$0.isSuspended } }

    private func precedes(_ left: Entry, _ right: Entry) -> Bool {
        (left.date, left.sequence) < (right.date, right.sequence)
    }

    private func randomDate() -> Int64 { Int64.random(in: dates, using: &generator) }

    private func randomTolerance() -> Int64 { Int64.random(in: tolerances, using: &generator) }
}

#endif
