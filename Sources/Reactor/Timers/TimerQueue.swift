/// Elements in the order of their dates, equal dates in the order of their sequence numbers: the timers of one group of
/// modes. Pure: no clock, no loop.
///
/// An indexed heap with four children to a node. Adding and removing cost O(log n) at worst and nearly
/// nothing in practice.
struct TimerQueue<Element>: ~Copyable {
    /// Where an element is filed until it is removed, wherever its date moves through the heap.
    typealias Slot = Int32

    struct Node {
        var date: Int64
        var sequence: UInt64
        let slot: Slot
        var leeway: Leeway

        @inline(__always)
        func precedes(_ other: Node) -> Bool {
            date == other.date ? sequence < other.sequence : date < other.date
        }
    }

    /// The heap, the first node first.
    private var nodes = Vector<Node>()
    /// Each slot's place among the nodes; for a free slot, the next free one.
    private var places = Vector<Int32>()
    /// By slot.
    private var slots = Vector<Element?>()
    /// The head of a list of the slots that are free again.
    private var firstFree: Slot = -1

    var isEmpty: Bool { nodes.isEmpty }
    var count: Int { nodes.count }
    /// The elements, in no order.
    var elements: [Element] { slots.indices.compactMap { slots[$0] } }

    subscript(slot: Slot) -> Element? { slots[Int(slot)] }

    // MARK: Filing

    @discardableResult
    mutating func insert(
        _ element: consuming Element, date: Int64, tolerance: Int64, isSetAside: Bool = false,
        sequence: UInt64
    ) -> Slot {
        let slot = takeSlot(for: element)
        let leeway = Leeway(nanoseconds: tolerance, isSetAside: isSetAside)
        let node = Node(date: date, sequence: sequence, slot: slot, leeway: leeway)
        nodes.append(node)
        rise(node, from: nodes.count - 1)
        return slot
    }

    @inline(__always)
    private mutating func takeSlot(for element: consuming Element) -> Slot {
        guard firstFree >= 0 else {
            places.append(0)
            slots.append(element)
            return Slot(truncatingIfNeeded: slots.count - 1)
        }
        let slot = firstFree
        firstFree = places[Int(slot)]
        slots[Int(slot)] = element
        return slot
    }

    @discardableResult
    mutating func remove(_ slot: Slot) -> Element? {
        let place = Int(places[Int(slot)])
        let last = nodes.removeLast()
        if place < nodes.count { replaceNode(at: place, with: last) }
        places[Int(slot)] = firstFree
        firstFree = slot
        return slots[Int(slot)].take()
    }

    /// Moves an element to another date, where it is then the last of those with the same; an element that
    /// has the date already keeps its place. It is set aside as before unless told otherwise.
    mutating func move(
        _ slot: Slot, date: Int64, tolerance: Int64, isSetAside: Bool? = nil, sequence: UInt64
    ) {
        let place = Int(places[Int(slot)])
        let isSetAside = isSetAside ?? nodes[place].leeway.isSetAside
        nodes[place].leeway = Leeway(nanoseconds: tolerance, isSetAside: isSetAside)
        setDate(date, at: place, sequence)
    }

    mutating func setAside(_ slot: Slot, _ isSetAside: Bool) {
        nodes[Int(places[Int(slot)])].leeway.isSetAside = isSetAside
    }

    /// Sets back an element that was set aside, to a date as ``move(_:date:tolerance:isSetAside:sequence:)`` does.
    mutating func setBack(_ slot: Slot, date: Int64, sequence: UInt64) {
        let place = Int(places[Int(slot)])
        nodes[place].leeway.isSetAside = false
        setDate(date, at: place, sequence)
    }

    private mutating func setDate(_ date: Int64, at place: Int, _ sequence: UInt64) {
        var node = nodes[place]
        guard node.date != date else { return }
        (node.date, node.sequence) = (date, sequence)
        replaceNode(at: place, with: node)
    }

    // MARK: The heap

    /// What precedes the old node precedes all that is below it, and what does not follows all that is above.
    @inline(__always)
    private mutating func replaceNode(at place: Int, with node: Node) {
        if node.precedes(nodes[place]) { rise(node, from: place) } else { sink(node, from: place) }
    }

    // Nothing is checked here: a place that is looked at is below the count, and a node's slot is one that was given out.
    // The checks are a tenth of what a timer costs. Tests compare each step with what a sorted list does.

    /// Puts `node` into the place `start`, or one above it.
    private mutating func rise(_ node: Node, from start: Int) {
        let (nodes, places) = unsafe (nodes.start, places.start)
        var hole = start
        while hole > 0 {
            let above = (hole &- 1) / 4
            let parent = unsafe nodes[above]
            guard node.precedes(parent) else { break }
            unsafe (nodes[hole], places[Int(parent.slot)]) = (parent, Int32(truncatingIfNeeded: hole))
            hole = above
        }
        unsafe (nodes[hole], places[Int(node.slot)]) = (node, Int32(truncatingIfNeeded: hole))
    }

    /// Puts `node` into the place `start`, or one below it.
    private mutating func sink(_ node: Node, from start: Int) {
        let (count, nodes, places) = unsafe (nodes.count, nodes.start, places.start)
        var hole = start
        while let place = unsafe Self.firstChild(of: hole, in: nodes, count) {
            let child = unsafe nodes[place]
            guard child.precedes(node) else { break }
            unsafe (nodes[hole], places[Int(child.slot)]) = (child, Int32(truncatingIfNeeded: hole))
            hole = place
        }
        unsafe (nodes[hole], places[Int(node.slot)]) = (node, Int32(truncatingIfNeeded: hole))
    }

    /// The place of the child that precedes its siblings; nil if there are none.
    ///
    /// Of four with different dates it is found by conditional moves: no processor could foretell the branches.
    @inline(__always)
    private static func firstChild(
        of place: Int, in nodes: UnsafeMutablePointer<Node>, _ count: Int
    ) -> Int? {
        let start = 4 &* place &+ 1
        guard start &+ 4 <= count else { return unsafe firstNode(from: start, in: nodes, count) }
        let (first, second) = unsafe (nodes[start].date, nodes[start &+ 1].date)
        let (third, fourth) = unsafe (nodes[start &+ 2].date, nodes[start &+ 3].date)
        let (left, right) = (min(first, second), min(third, fourth))
        if first == second || third == fourth || left == right {
            return unsafe firstNode(from: start, in: nodes, count)
        }
        let isRight = right < left
        let isSecond = isRight ? fourth < third : second < first
        return start &+ (isRight ? 2 : 0) &+ (isSecond ? 1 : 0)
    }

    /// The first of the four nodes, if there are so many, from `start` on; nil if there are none.
    @inline(never)
    private static func firstNode(
        from start: Int, in nodes: UnsafeMutablePointer<Node>, _ count: Int
    ) -> Int? {
        guard start < count else { return nil }
        var best = start
        for other in start + 1..<max(start + 1, min(start + 4, count))
        where unsafe nodes[other].precedes(nodes[best]) { best = other }
        return best
    }

    // MARK: Asking

    /// The earliest element that is due at `now`, of those filed before `sequence` that are not set aside.
    func firstDue(at now: Int64, filedBefore sequence: UInt64) -> Node? {
        guard let top = nodes.first, top.date <= now else { return nil }
        if isEligible(top, sequence) { return top }
        return firstDue(at: now, filedBefore: sequence, under: 0)
    }

    @inline(__always)
    private func isEligible(_ node: Node, _ sequence: UInt64) -> Bool {
        !node.leeway.isSetAside && node.sequence < sequence
    }

    /// Sets aside what ``firstDue(at:filedBefore:)`` finds, until it is moved or set back.
    mutating func setAsideFirstDue(at now: Int64, filedBefore sequence: UInt64) -> Element? {
        guard let node = firstDue(at: now, filedBefore: sequence) else { return nil }
        setAside(node.slot, true)
        return slots[Int(node.slot)]
    }

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

    /// The places of a node's children.
    private func children(of place: Int) -> Range<Int> {
        let first = 4 * place + 1
        return first..<max(first, min(first + 4, nodes.count))
    }

    private func firstDue(at now: Int64, filedBefore sequence: UInt64, under place: Int) -> Node? {
        let node = nodes[place]
        guard node.date <= now else { return nil }
        if isEligible(node, sequence) { return node }
        var best: Node?
        for child in children(of: place) {
            guard let found = firstDue(at: now, filedBefore: sequence, under: child) else { continue }
            if best.map({ found.precedes($0) }) ?? true { best = found }
        }
        return best
    }

    /// Lowers `limit` to the earliest end of a window under `place`.
    private func narrow(_ limit: inout Int64, under place: Int, _ least: Int64, _ visits: inout Int) {
        let node = nodes[place]
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
        for child in children(of: place) { narrow(&limit, under: child, least, &visits) }
    }

    /// Raises `latest` to the last date under `place` that is not after `limit`.
    private func widen(_ latest: inout Int64, upTo limit: Int64, under place: Int, _ visits: inout Int) {
        let node = nodes[place]
        guard visits > 0, node.date <= limit else { return }
        visits -= 1
        if !node.leeway.isSetAside { latest = max(latest, node.date) }
        for child in children(of: place) { widen(&latest, upTo: limit, under: child, &visits) }
    }
}

/// How late a timer may be, in four bytes; and whether it is set aside. Pure.
///
/// Exact up to 33 ms, and beyond that rounded down, by less than a millionth.
struct Leeway: Equatable {
    /// From the lowest bit: whether it is set aside, six bits of exponent, twenty-five of mantissa.
    private var bits: UInt32

    private static var mantissaBits: Int { 25 }

    /// - Parameter nanoseconds: Zero or more.
    @inline(__always)
    init(nanoseconds: Int64, isSetAside: Bool = false) {
        let exponent = max(0, Int64.bitWidth - nanoseconds.leadingZeroBitCount - Self.mantissaBits)
        let mantissa = UInt32(truncatingIfNeeded: nanoseconds >> Int64(exponent))
        bits = mantissa << 7 | UInt32(exponent) << 1 | (isSetAside ? 1 : 0)
    }

    var nanoseconds: Int64 { Int64(bits >> 7) << Int64(bits >> 1 & 63) }

    /// An element that is set aside stays in the queue, but is neither due nor waited for.
    var isSetAside: Bool {
        get { bits & 1 != 0 }
        set { bits = bits & ~1 | (newValue ? 1 : 0) }
    }
}
