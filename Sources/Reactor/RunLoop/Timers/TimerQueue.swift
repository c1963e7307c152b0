/// The timers of one mode in the order of their dates, timers of the same date in the order of their sequence numbers.
/// Pure: no clock, no loop.
struct TimerQueue<Element>: ~Copyable {
    typealias Slot = IndexedHeap<Element, Leeway>.Slot
    typealias Node = IndexedHeap<Element, Leeway>.Node

    private var heap = IndexedHeap<Element, Leeway>()

    var isEmpty: Bool { heap.isEmpty }
    var count: Int { heap.count }
    /// The elements, in no order.
    var elements: [Element] { heap.elements }

    subscript(slot: Slot) -> Element? { heap[slot] }

    // MARK: Changes

    mutating func insert(
        _ element: consuming Element, date: Int64, tolerance: Int64, isSuspended: Bool = false,
        sequence: UInt64
    ) -> Slot {
        let leeway = Leeway(nanoseconds: tolerance, isSuspended: isSuspended)
        return heap.insert(element, priority: date, sequence: sequence, mark: leeway)
    }

    @discardableResult
    mutating func remove(_ slot: Slot) -> Element? { heap.remove(slot) }

    /// Moves an element to another date, behind those that have it already; with the same date it stays where it is.
    mutating func move(_ slot: Slot, date: Int64, tolerance: Int64, isSuspended: Bool, sequence: UInt64) {
        heap.move(slot, to: date, sequence: sequence) {
            $0 = Leeway(nanoseconds: tolerance, isSuspended: isSuspended)
        }
    }

    /// Keeps an element in the queue, but neither due nor waited for.
    mutating func suspend(_ slot: Slot) { heap.changeMark(of: slot) { $0.isSuspended = true } }

    /// Ends a suspension, and moves the element to `date`.
    mutating func resume(_ slot: Slot, date: Int64, sequence: UInt64) {
        heap.move(slot, to: date, sequence: sequence) { $0.isSuspended = false }
    }

    // MARK: What is due

    /// The earliest element that is due at `now`, of those added before `sequence` that are not suspended.
    func firstDue(at now: Int64, addedBefore sequence: UInt64) -> Node? {
        heap.first(upTo: now) { !$0.mark.isSuspended && $0.sequence < sequence }
    }

    /// Suspends what ``firstDue(at:addedBefore:)`` finds, until it is moved or resumed.
    mutating func suspendFirstDue(at now: Int64, addedBefore sequence: UInt64) -> (Element, Slot)? {
        guard let node = firstDue(at: now, addedBefore: sequence), let element = heap[node.slot] else {
            return nil
        }
        suspend(node.slot)
        return (element, node.slot)
    }

    /// See ``IndexedHeap/prefetchNext()``.
    @inline(__always)
    mutating func prefetchNext() where Element: AnyObject { heap.prefetchNext() }

    /// The earliest date of the elements that are not suspended.
    var earliestDate: Int64? { firstDue(at: .max, addedBefore: .max)?.priority }

    // MARK: When to wake

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

    /// How many nodes one search for windows visits: it finds the best wake-up among that many timers, and beyond
    /// them one that fewer share, so that a pass does not get slower with the number of timers.
    private static var visitsPerSearch: Int { 128 }

    /// The earliest end of a window: no element may wait longer.
    private func earliestEnd(leastTolerance: Int64) -> Int64 {
        var limit = Int64.max
        var visits = Self.visitsPerSearch
        lower(&limit, from: 0, leastTolerance, &visits)
        return limit
    }

    /// Moves `date` to the last of the queue's dates that is not after `limit`, if that is later.
    private func postpone(_ date: inout Int64, upTo limit: Int64) {
        var visits = Self.visitsPerSearch
        raise(&date, upTo: limit, from: 0, &visits)
    }

    /// Lowers `limit` to the earliest end of a window at or below `position`.
    private func lower(_ limit: inout Int64, from position: Int, _ least: Int64, _ visits: inout Int) {
        let node = heap.node(at: position)
        guard node.priority <= limit else { return }
        guard visits > 0 else {
            limit = node.priority
            return
        }
        visits -= 1
        if !node.mark.isSuspended {
            limit = min(limit, node.priority.addingSaturated(max(node.mark.nanoseconds, least)))
        }
        for child in heap.children(of: position) { lower(&limit, from: child, least, &visits) }
    }

    /// Raises `latest` to the last date at or below `position` that is not after `limit`.
    private func raise(_ latest: inout Int64, upTo limit: Int64, from position: Int, _ visits: inout Int) {
        let node = heap.node(at: position)
        guard visits > 0, node.priority <= limit else { return }
        visits -= 1
        if !node.mark.isSuspended { latest = max(latest, node.priority) }
        for child in heap.children(of: position) { raise(&latest, upTo: limit, from: child, &visits) }
    }
}

/// How late a timer may be, in four bytes, and whether it is suspended. Pure.
///
/// Exact up to 33 ms, and beyond that rounded down, by less than a millionth.
struct Leeway: Equatable {
    /// From the lowest bit: whether it is suspended, six bits of exponent, twenty-five of mantissa.
    private var bits: UInt32

    private static var mantissaBits: Int { 25 }

    /// - Parameter nanoseconds: Zero or more.
    @inline(__always)
    init(nanoseconds: Int64, isSuspended: Bool = false) {
        let exponent = max(0, Int64.bitWidth - nanoseconds.leadingZeroBitCount - Self.mantissaBits)
        let mantissa = UInt32(truncatingIfNeeded: nanoseconds >> Int64(exponent))
        bits = mantissa << 7 | UInt32(exponent) << 1 | (isSuspended ? 1 : 0)
    }

    var nanoseconds: Int64 { Int64(bits >> 7) << Int64(bits >> 1 & 63) }

    var isSuspended: Bool {
        get { bits & 1 != 0 }
        set { bits = bits & ~1 | (newValue ? 1 : 0) }
    }
}
