import CReactorLinux

extension DateHeap {
    /// The heap's storage while a node is moved through it.
    ///
    /// Nothing is checked here, and nothing grows meanwhile: a place that is looked at is below `count`, and a node's
    /// slot is one that was given out. Tests compare each step with what a sorted list does.
    @unsafe
    struct Lanes {
        let nodes: UnsafeMutablePointer<Node>
        let count: Int
        let places: UnsafeMutablePointer<Int32>
        let records: UnsafeMutablePointer<Record>
    }
}

extension DateHeap.Lanes {
    typealias Node = DateHeap<Element>.Node
    typealias Slot = DateHeap<Element>.Slot

    // MARK: Moving

    /// Puts `node` into the place `start`, or one above it.
    func rise(_ node: Node, from start: Int) {
        var hole = start
        while hole > 0 {
            let above = (hole &- 1) / 4
            let parent = unsafe nodes[above]
            guard unsafe precedes(node, parent) else { break }
            unsafe put(parent, at: hole)
            hole = above
        }
        unsafe put(node, at: hole)
    }

    /// Puts `node` into the place `start`, or one below it.
    func sink(_ node: Node, from start: Int) {
        var hole = start
        while let place = unsafe firstChild(of: hole) {
            let child = unsafe nodes[place]
            guard unsafe precedes(child, node) else { break }
            unsafe put(child, at: hole)
            unsafe fetchAhead(child.slot, for: hole)
            hole = place
        }
        unsafe put(node, at: hole)
    }

    @inline(__always)
    private func put(_ node: Node, at place: Int) {
        unsafe nodes[place] = node
        unsafe places[Int(node.slot)] = Int32(truncatingIfNeeded: place)
    }

    // MARK: Order

    @inline(__always)
    private func precedes(_ left: Node, _ right: Node) -> Bool {
        if left.date == right.date {
            return unsafe records[Int(left.slot)].sequence < records[Int(right.slot)].sequence
        }
        return left.date < right.date
    }

    /// The place of the child that precedes its siblings.
    ///
    /// Of four with different dates it is found by conditional moves: no processor could foretell the branches.
    @inline(__always)
    private func firstChild(of place: Int) -> Int? {
        let start = 4 &* place &+ 1
        guard unsafe start &+ 4 <= count else { return unsafe firstNode(from: start) }
        unsafe fetchChildren(of: start)
        let (first, second) = unsafe (nodes[start].date, nodes[start &+ 1].date)
        let (third, fourth) = unsafe (nodes[start &+ 2].date, nodes[start &+ 3].date)
        let (left, right) = (min(first, second), min(third, fourth))
        if first == second || third == fourth || left == right { return unsafe firstNode(from: start) }
        let isRight = right < left
        let isSecond = isRight ? fourth < third : second < first
        return start &+ (isRight ? 2 : 0) &+ (isSecond ? 1 : 0)
    }

    /// The first of the four nodes, if there are so many, from `start` on; nil if there are none.
    @inline(never)
    private func firstNode(from start: Int) -> Int? {
        guard unsafe start < count else { return nil }
        var best = start
        for other in unsafe start + 1..<max(start + 1, min(start + 4, count))
        where unsafe precedes(nodes[other], nodes[best]) { best = other }
        return best
    }

    // MARK: Fetching

    // Among many elements, most of what one costs is waiting for memory. Here the processor is told early what it
    // will need: a heap that takes out its first element, again and again, is easy to foretell.

    /// Has the processor fetch what is needed when the node that has come to `place` is the first: its record
    /// while it is two steps from there, its element while it is one.
    @inline(__always)
    private func fetchAhead(_ slot: Slot, for place: Int) {
        guard 1...20 ~= place else { return }
        let record = unsafe UnsafeRawPointer(records + Int(slot))
        if place > 4 { return reactor_prefetch(UInt(bitPattern: record)) }
        // The bits of a reference, which is not counted: that would wait for the element. Bits that are no
        // reference do no harm.
        guard MemoryLayout<Element?>.size == MemoryLayout<UInt>.size else { return }
        let element = unsafe record.load(as: UInt.self)
        reactor_prefetch(element)
        reactor_prefetch(element &+ 64)
    }

    /// Has the processor fetch the children of the four nodes at `start`: those of one of them are compared next.
    @inline(__always)
    private func fetchChildren(of start: Int) {
        let first = 4 &* start &+ 1
        guard unsafe first &+ 16 <= count else { return }
        let address = UInt(bitPattern: unsafe nodes + first)
        for line in 0..<4 { reactor_prefetch(address &+ UInt(64 &* line)) }
    }
}
