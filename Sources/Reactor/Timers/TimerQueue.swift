/// The timers of one group of modes, in the order in which they are due. Pure: no clock, no loop.
///
/// Timers with the same date come out in the order in which they went in.
struct TimerQueue<Element>: ~Copyable {
    /// Where an element is filed until it is removed.
    typealias Slot = DateHeap<Element>.Slot
    typealias Node = DateHeap<Element>.Node

    private var heap = DateHeap<Element>()

    var isEmpty: Bool { heap.nodes.isEmpty }
    var count: Int { heap.nodes.count }

    subscript(slot: Slot) -> Element? { heap[slot] }

    // MARK: Filing

    /// The slot of the element that is inserted next.
    var nextSlot: Slot { heap.nextSlot }

    @discardableResult
    mutating func insert(
        _ element: consuming Element, date: Int64, tolerance: Int64, isSetAside: Bool = false,
        sequence: UInt64
    ) -> Slot {
        let slot = heap.nextSlot
        let leeway = Leeway(nanoseconds: tolerance, isSetAside: isSetAside)
        heap.insert(element, date: date, leeway: leeway, sequence: sequence)
        return slot
    }

    @discardableResult
    mutating func remove(_ slot: Slot) -> Element? { heap.remove(slot) }

    /// Moves an element to another date, where it is then the last of those with the same; an element that
    /// has the date already keeps its place. It is set aside as before unless told otherwise.
    mutating func move(
        _ slot: Slot, date: Int64, tolerance: Int64, isSetAside: Bool? = nil, sequence: UInt64
    ) {
        let node = heap.node(of: slot)
        let leeway = Leeway(nanoseconds: tolerance, isSetAside: isSetAside ?? node.leeway.isSetAside)
        if node.date == date {
            heap.setLeeway(leeway, of: slot)
        } else {
            heap.move(slot, date: date, leeway: leeway, sequence: sequence)
        }
    }

    mutating func setAside(_ slot: Slot, _ isSetAside: Bool) { heap.setAside(slot, isSetAside) }

    /// Sets back an element that was set aside, to a date as ``move(_:date:tolerance:isSetAside:sequence:)`` does.
    mutating func setBack(_ slot: Slot, date: Int64, sequence: UInt64) {
        heap.setBack(slot, date: date, sequence: sequence)
    }

    // MARK: Asking

    /// The earliest element that is due at `now`, of those filed before `sequence` that are not set aside.
    func firstDue(at now: Int64, filedBefore sequence: UInt64) -> Node? {
        guard let top = heap.nodes.first, top.date <= now else { return nil }
        if isEligible(top, sequence) { return top }
        return firstDue(at: now, filedBefore: sequence, under: 0)
    }

    @inline(__always)
    private func isEligible(_ node: Node, _ sequence: UInt64) -> Bool {
        !node.leeway.isSetAside && heap.sequence(of: node.slot) < sequence
    }

    /// Sets aside what ``firstDue(at:filedBefore:)`` finds, until it is moved or set back.
    mutating func setAsideFirstDue(at now: Int64, filedBefore sequence: UInt64) -> Element? {
        guard let node = firstDue(at: now, filedBefore: sequence) else { return nil }
        heap.setAside(node.slot, true)
        return heap[node.slot]
    }

    func sequence(of slot: Slot) -> UInt64 { heap.sequence(of: slot) }

    /// The earliest date of those that are not set aside.
    var earliestDate: Int64? {
        firstDue(at: .max, filedBefore: .max)?.date
    }

    /// When to wake, so that no element is later than its tolerance allows and as many as possible share the
    /// wake-up.
    ///
    /// That is the latest date that lies in every window which the earliest wake-up must serve: a timer alone
    /// is served at its date. `leastTolerance` is the tolerance of those that have less.
    func wakeDate(leastTolerance: Int64) -> Int64? {
        guard var date = earliestDate else { return nil }
        postpone(&date, upTo: earliestEnd(leastTolerance: leastTolerance))
        return date
    }

    /// As ``wakeDate(leastTolerance:)``, for the timers of two queues together.
    func wakeDate(leastTolerance: Int64, with other: borrowing TimerQueue) -> Int64? {
        guard let own = earliestDate else { return other.wakeDate(leastTolerance: leastTolerance) }
        guard let others = other.earliestDate else { return wakeDate(leastTolerance: leastTolerance) }
        let limit = min(
            earliestEnd(leastTolerance: leastTolerance), other.earliestEnd(leastTolerance: leastTolerance))
        var date = min(own, others)
        postpone(&date, upTo: limit)
        other.postpone(&date, upTo: limit)
        return date
    }

    /// The elements, in no order.
    var elements: [Element] { heap.elements }
}

// MARK: - Looking through the heap

extension TimerQueue {
    /// How many nodes a question about windows looks at: beyond, it settles for a wake-up that is shared by
    /// fewer.
    private static var visitsPerQuestion: Int { 128 }

    /// The earliest end of a window: nobody may be kept waiting longer.
    private func earliestEnd(leastTolerance: Int64) -> Int64 {
        var limit = Int64.max
        var visits = Self.visitsPerQuestion
        narrow(&limit, under: 0, leastTolerance, &visits)
        return limit
    }

    /// Moves `date` to the last of the queue's dates that is not after `limit`, if that is later.
    private func postpone(_ date: inout Int64, upTo limit: Int64) {
        var visits = Self.visitsPerQuestion
        widen(&date, upTo: limit, under: 0, &visits)
    }

    private func firstDue(at now: Int64, filedBefore sequence: UInt64, under place: Int) -> Node? {
        let node = heap.nodes[place]
        guard node.date <= now else { return nil }
        if isEligible(node, sequence) { return node }
        var best: Node?
        for child in heap.children(of: place) {
            guard let found = firstDue(at: now, filedBefore: sequence, under: child) else { continue }
            if best.map({ heap.precedes(found, $0) }) ?? true { best = found }
        }
        return best
    }

    /// Lowers `limit` to the earliest end of a window under `place`.
    private func narrow(_ limit: inout Int64, under place: Int, _ least: Int64, _ visits: inout Int) {
        let node = heap.nodes[place]
        guard node.date <= limit else { return }
        guard visits > 0 else {
            limit = node.date
            return
        }
        visits -= 1
        let leeway = node.leeway
        if !leeway.isSetAside {
            limit = min(limit, node.date.addingSaturated(max(leeway.nanoseconds, least)))
        }
        for child in heap.children(of: place) { narrow(&limit, under: child, least, &visits) }
    }

    /// Raises `latest` to the last date under `place` that is not after `limit`.
    private func widen(_ latest: inout Int64, upTo limit: Int64, under place: Int, _ visits: inout Int) {
        let node = heap.nodes[place]
        guard visits > 0, node.date <= limit else { return }
        visits -= 1
        if !node.leeway.isSetAside { latest = max(latest, node.date) }
        for child in heap.children(of: place) { widen(&latest, upTo: limit, under: child, &visits) }
    }
}
