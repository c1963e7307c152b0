/// A block from another thread, on its way to the loop.
struct PostedBlock {
    let modes: ModeSet
    /// Whether running it counts as having handled a source.
    let isSource: Bool
    /// Nil once the loop has taken it.
    var body: (@Sendable () -> Void)?
}

/// Blocks that wait for a pass, in the order of posting.
struct BlockQueue {
    /// A block, numbered in the order of posting so that several queues can be run as one.
    struct Entry {
        let sequence: UInt64
        let isSource: Bool
        /// Nil once it has been taken.
        var body: (@Sendable () -> Void)?
    }

    private var entries: [Entry] = []

    var count: Int { entries.count }

    mutating func append(_ entry: Entry) { entries.append(entry) }

    /// Moves every entry to the end of `batch`.
    mutating func drain(into batch: inout [Entry]) {
        if batch.isEmpty { swap(&entries, &batch) } else { batch.append(contentsOf: entries) }
        entries.removeAll(keepingCapacity: entries.capacity <= Self.keptCapacity)
    }

    /// Removes and returns everything.
    mutating func take() -> BlockQueue {
        var taken = BlockQueue()
        swap(&taken, &self)
        return taken
    }

    /// Storage for up to this many entries, some 130 KB, is kept for reuse; what a burst needed beyond that is freed.
    static let keptCapacity = 4096
}

/// The blocks for several modes: a queue for each set of modes that was ever posted to, so that a block waits in one
/// place and leaves nothing in other queues when it runs.
///
/// A program uses few such sets, made from a fixed set of names.
struct SharedBlocks {
    private var queues: [(modes: ModeSet, blocks: BlockQueue)] = []

    mutating func append(_ entry: BlockQueue.Entry, in modes: ModeSet) {
        if let index = queues.firstIndex(where: { $0.modes == modes }) {
            queues[index].blocks.append(entry)
        } else {
            queues.append((modes, BlockQueue()))
            queues[queues.endIndex - 1].blocks.append(entry)
        }
    }

    /// Moves every entry that one of `modes` may run to the end of `batch`. Calls `noteLoss` with each mode of those
    /// entries, other modes included, and how many it has lost.
    mutating func drain(
        _ modes: [RunLoop.Mode], into batch: inout [BlockQueue.Entry], _ noteLoss: (RunLoop.Mode, Int) -> Void
    ) {
        for index in queues.indices where modes.contains(where: queues[index].modes.contains) {
            let count = queues[index].blocks.count
            queues[index].blocks.drain(into: &batch)
            if count > 0 { for mode in queues[index].modes.members { noteLoss(mode, count) } }
        }
    }
}
