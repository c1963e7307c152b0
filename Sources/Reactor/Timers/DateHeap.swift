/// Elements in the order of their dates, equal dates in the order of their sequence numbers. Pure.
///
/// An indexed heap with four children to a node. Adding and removing cost O(log n) at worst and nearly
/// nothing in practice. A node is sixteen bytes, so that four children are one line of the processor's cache;
/// what is seldom asked for while nodes move is kept apart.
struct DateHeap<Element>: ~Copyable {
    /// What stays the same while a date moves through the heap.
    typealias Slot = Int32

    struct Node {
        var date: Int64
        let slot: Slot
        var leeway: Leeway
    }

    struct Record {
        var element: Element?
        var sequence: UInt64
    }

    /// The heap, the first node first.
    private(set) var nodes = Vector<Node>()
    /// Each slot's place among the nodes; for a free slot, the next free one.
    private var places = Vector<Int32>()
    /// By slot.
    private var records = Vector<Record>()
    /// The head of a list of the slots that are free again.
    private var firstFree: Slot = -1

    subscript(slot: Slot) -> Element? { records[Int(slot)].element }

    func node(of slot: Slot) -> Node { nodes[Int(places[Int(slot)])] }

    func sequence(of slot: Slot) -> UInt64 { records[Int(slot)].sequence }

    /// The elements, in no order.
    var elements: [Element] { records.indices.compactMap { records[$0].element } }

    /// The places of a node's children.
    func children(of place: Int) -> Range<Int> {
        let first = 4 * place + 1
        return first..<max(first, min(first + 4, nodes.count))
    }

    // MARK: Changing

    /// Adds an element, under a slot that is free: ``nextSlot``.
    mutating func insert(_ element: consuming Element, date: Int64, leeway: Leeway, sequence: UInt64) {
        let slot = takeSlot(for: Record(element: element, sequence: sequence))
        let node = Node(date: date, slot: slot, leeway: leeway)
        nodes.append(node)
        unsafe lanes.rise(node, from: nodes.count - 1)
    }

    /// The slot that the next element gets: one that is free again, or the next after all that were ever used.
    var nextSlot: Slot { firstFree >= 0 ? firstFree : Slot(truncatingIfNeeded: records.count) }

    private mutating func takeSlot(for record: consuming Record) -> Slot {
        let slot = nextSlot
        if slot == firstFree {
            firstFree = places[Int(slot)]
            records[Int(slot)] = record
        } else {
            places.append(0)
            records.append(record)
        }
        return slot
    }

    mutating func remove(_ slot: Slot) -> Element? {
        let place = Int(places[Int(slot)])
        let last = nodes.removeLast()
        if place < nodes.count { replaceNode(at: place, with: last) }
        places[Int(slot)] = firstFree
        firstFree = slot
        return records[Int(slot)].element.take()
    }

    mutating func move(_ slot: Slot, date: Int64, leeway: Leeway, sequence: UInt64) {
        records[Int(slot)].sequence = sequence
        replaceNode(at: Int(places[Int(slot)]), with: Node(date: date, slot: slot, leeway: leeway))
    }

    /// Moves an element that was set aside, and sets it back.
    mutating func setBack(_ slot: Slot, date: Int64, sequence: UInt64) {
        let place = Int(places[Int(slot)])
        nodes[place].leeway.isSetAside = false
        var node = nodes[place]
        guard node.date != date else { return }
        node.date = date
        records[Int(slot)].sequence = sequence
        replaceNode(at: place, with: node)
    }

    mutating func setLeeway(_ leeway: Leeway, of slot: Slot) {
        nodes[Int(places[Int(slot)])].leeway = leeway
    }

    mutating func setAside(_ slot: Slot, _ isSetAside: Bool) {
        nodes[Int(places[Int(slot)])].leeway.isSetAside = isSetAside
    }

    // MARK: Order

    func precedes(_ left: Node, _ right: Node) -> Bool {
        if left.date == right.date { return sequence(of: left.slot) < sequence(of: right.slot) }
        return left.date < right.date
    }

    /// What precedes the old node precedes all that is below it, and what does not follows all that is above.
    @inline(__always)
    private mutating func replaceNode(at place: Int, with node: Node) {
        if precedes(node, nodes[place]) {
            unsafe lanes.rise(node, from: place)
        } else {
            unsafe lanes.sink(node, from: place)
        }
    }

    private var lanes: Lanes {
        @inline(__always) mutating get {
            unsafe Lanes(
                nodes: nodes.start, count: nodes.count, places: places.start, records: records.start)
        }
    }
}
