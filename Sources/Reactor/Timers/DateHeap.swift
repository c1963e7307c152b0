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

    /// Adds an element, under a slot that is free: the next after all that were ever used, or one of those.
    mutating func insert(_ element: Element, date: Int64, leeway: Leeway, sequence: UInt64) -> Slot {
        let slot = takeSlot(for: Record(element: element, sequence: sequence))
        let node = Node(date: date, slot: slot, leeway: leeway)
        nodes.append(node)
        rise(node, from: nodes.count - 1)
        return slot
    }

    private mutating func takeSlot(for record: Record) -> Slot {
        let slot = firstFree
        guard slot >= 0 else {
            places.append(0)
            records.append(record)
            return Slot(truncatingIfNeeded: records.count - 1)
        }
        firstFree = places[Int(slot)]
        records[Int(slot)] = record
        return slot
    }

    mutating func remove(_ slot: Slot) -> Element? {
        let place = Int(places[Int(slot)])
        let last = nodes.removeLast()
        if place < nodes.count { settle(last, at: place) }
        places[Int(slot)] = firstFree
        firstFree = slot
        return records[Int(slot)].element.take()
    }

    mutating func move(_ slot: Slot, date: Int64, leeway: Leeway, sequence: UInt64) {
        records[Int(slot)].sequence = sequence
        settle(Node(date: date, slot: slot, leeway: leeway), at: Int(places[Int(slot)]))
    }

    /// Moves an element that was set aside, and sets it back.
    mutating func setBack(_ slot: Slot, date: Int64, sequence: UInt64) {
        let place = Int(places[Int(slot)])
        nodes[place].leeway.isSetAside = false
        var node = nodes[place]
        guard node.date != date else { return }
        node.date = date
        records[Int(slot)].sequence = sequence
        settle(node, at: place)
    }

    mutating func setLeeway(_ leeway: Leeway, of slot: Slot) {
        nodes[Int(places[Int(slot)])].leeway = leeway
    }

    mutating func setAside(_ slot: Slot, _ isSetAside: Bool) {
        nodes[Int(places[Int(slot)])].leeway.isSetAside = isSetAside
    }

    private mutating func settle(_ node: Node, at place: Int) {
        if place > 0, precedes(node, nodes[(place - 1) / 4]) {
            rise(node, from: place)
        } else {
            sink(node, from: place)
        }
    }

    // MARK: Order

    func precedes(_ left: Node, _ right: Node) -> Bool {
        Self.precedes(left, right, unsafe records.buffer.span)
    }

    @inline(__always)
    private static func precedes(_ left: Node, _ right: Node, _ records: Span<Record>) -> Bool {
        if left.date == right.date {
            return records[Int(left.slot)].sequence < records[Int(right.slot)].sequence
        }
        return left.date < right.date
    }

    // The spans are taken once, and nothing grows while they are used.

    private mutating func rise(_ node: Node, from start: Int) {
        let records = unsafe self.records.buffer.span
        var nodes = unsafe self.nodes.buffer.mutableSpan
        var places = unsafe self.places.buffer.mutableSpan
        var hole = start
        while hole > 0 {
            let above = (hole - 1) / 4
            let parent = nodes[above]
            guard Self.precedes(node, parent, records) else { break }
            nodes[hole] = parent
            places[Int(parent.slot)] = Int32(truncatingIfNeeded: hole)
            hole = above
        }
        nodes[hole] = node
        places[Int(node.slot)] = Int32(truncatingIfNeeded: hole)
    }

    private mutating func sink(_ node: Node, from start: Int) {
        let records = unsafe self.records.buffer.span
        var nodes = unsafe self.nodes.buffer.mutableSpan
        var places = unsafe self.places.buffer.mutableSpan
        var hole = start
        while 4 &* hole &+ 1 < nodes.count {
            Self.fetchGrandchildren(of: hole, nodes.span)
            let place = Self.firstChild(of: hole, nodes, records)
            let child = nodes[place]
            guard Self.precedes(child, node, records) else { break }
            nodes[hole] = child
            places[Int(child.slot)] = Int32(truncatingIfNeeded: hole)
            Self.fetchAhead(child.slot, for: hole, records)
            hole = place
        }
        nodes[hole] = node
        places[Int(node.slot)] = Int32(truncatingIfNeeded: hole)
    }

    /// The place of the child that precedes its siblings.
    ///
    /// Of four with different dates it is found by conditional moves: no processor could foretell the branches.
    @inline(__always)
    private static func firstChild(
        of place: Int, _ nodes: borrowing MutableSpan<Node>, _ records: Span<Record>
    ) -> Int {
        let start = 4 &* place &+ 1
        let children = nodes.span.extracting(start..<min(start &+ 4, nodes.count))
        if children.count == 4 {
            let (first, second) = (children[0].date, children[1].date)
            let (third, fourth) = (children[2].date, children[3].date)
            let (left, right) = (min(first, second), min(third, fourth))
            if first != second, third != fourth, left != right {
                let isRight = right < left
                let isSecond = isRight ? fourth < third : second < first
                return start &+ (isRight ? 2 : 0) &+ (isSecond ? 1 : 0)
            }
        }
        var best = 0
        for other in 1..<children.count where precedes(children[other], children[best], records) {
            best = other
        }
        return start &+ best
    }
}
