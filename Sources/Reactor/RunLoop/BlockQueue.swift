/// A block from another thread, which waits for a pass in one of its modes.
struct PostedBlock {
    let modes: ModeSet
    /// Whether running it counts as having handled a source.
    let isSource: Bool
    /// Nil once it has been taken.
    var body: (@Sendable () -> Void)?
}

/// The blocks that wait for passes in any mode, in the order of posting.
///
/// A pass looks at all of them, but only if one of its modes has a block.
struct BlockQueue {
    private(set) var blocks: [PostedBlock] = []

    var isEmpty: Bool { blocks.isEmpty }

    /// Moves `new` to the end. Where the queue is empty, it takes the storage and leaves its own.
    mutating func append(_ new: inout [PostedBlock]) {
        if blocks.isEmpty { return swap(&blocks, &new) }
        blocks.append(contentsOf: new)
        new.removeAll(keepingCapacity: new.capacity <= Self.keptCapacity)
    }

    /// Moves the blocks for any of `modes` to `batch`, which is empty.
    mutating func take(for modes: ModeSet, into batch: inout [PostedBlock]) {
        if blocks.allSatisfy({ $0.modes.intersects(modes) }) { return swap(&blocks, &batch) }
        batch.append(contentsOf: blocks.lazy.filter { $0.modes.intersects(modes) })
        blocks.removeAll { $0.modes.intersects(modes) }
    }

    /// Storage for up to this many blocks, some 130 KB, is kept for reuse; what a burst needed beyond that is freed.
    static let keptCapacity = 4096
}
