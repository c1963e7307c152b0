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
    /// Storage for the next batch.
    private var spare: [PostedBlock] = []

    var isEmpty: Bool { blocks.isEmpty }

    /// Moves `new` to the end. Where the queue is empty, it takes the storage and leaves its own.
    mutating func append(_ new: inout [PostedBlock]) {
        if blocks.isEmpty { return swap(&blocks, &new) }
        blocks.append(contentsOf: new)
        new.removeAll(keepingCapacity: new.capacity <= Self.keptCapacity)
    }

    /// Moves the blocks for any of `modes` out.
    mutating func takeBatch(for modes: ModeSet) -> [PostedBlock] {
        var batch = exchange(&spare, with: [])
        if blocks.allSatisfy({ $0.modes.intersects(modes) }) {
            swap(&blocks, &batch)
        } else {
            batch.append(contentsOf: blocks.lazy.filter { $0.modes.intersects(modes) })
            blocks.removeAll { $0.modes.intersects(modes) }
        }
        return batch
    }

    /// Keeps the storage of a batch whose blocks have run, unless a nested run has left as much.
    mutating func keepStorage(of batch: inout [PostedBlock]) {
        batch.removeAll(keepingCapacity: batch.capacity <= Self.keptCapacity)
        if spare.capacity < batch.capacity { swap(&batch, &spare) }
    }

    /// Storage for up to this many blocks, some 130 KB, is kept for reuse; what a burst needed beyond that is freed.
    static let keptCapacity = 4096
}
