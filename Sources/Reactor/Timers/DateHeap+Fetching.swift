import CReactorLinux

// Among many elements, most of what one costs is waiting for memory. Here the processor is told early what it
// will need: a heap that takes out its first element, again and again, is easy to foretell.

extension DateHeap {
    /// Has the processor fetch what is needed when the node that has come to `place` is the first: its record
    /// while it is two steps from there, its element while it is one.
    @inline(__always)
    static func fetchAhead(_ slot: Slot, for place: Int, _ records: Span<Record>) {
        guard 1...20 ~= place else { return }
        unsafe records.withUnsafeBufferPointer { records in
            guard let start = records.baseAddress else { return }
            let record = unsafe UnsafeRawPointer(start + Int(slot))
            if place > 4 { return reactor_prefetch(UInt(bitPattern: record)) }
            // The bits of a reference, which is not counted: that would wait for the element. Bits that are no
            // reference do no harm.
            guard MemoryLayout<Element?>.size == MemoryLayout<UInt>.size else { return }
            let element = unsafe record.load(as: UInt.self)
            reactor_prefetch(element)
            reactor_prefetch(element &+ 64)
        }
    }

    /// Has the processor fetch the nodes that a node going down from `place` is compared with after its children.
    @inline(__always)
    static func fetchGrandchildren(of place: Int, _ nodes: Span<Node>) {
        let (first, count) = (16 &* place &+ 5, 16)
        guard first &+ count <= nodes.count else { return }
        unsafe nodes.withUnsafeBufferPointer { nodes in
            guard let start = nodes.baseAddress else { return }
            let address = UInt(bitPattern: unsafe start + first)
            for line in 0..<4 { reactor_prefetch(address &+ UInt(64 &* line)) }
        }
    }
}
