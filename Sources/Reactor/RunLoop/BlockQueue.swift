/// Blocks that wait for a pass, first in, first out.
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

    /// Takes out everything.
    mutating func take() -> BlockQueue {
        var taken = BlockQueue()
        swap(&taken, &self)
        return taken
    }

    /// Storage beyond this is given back after a burst.
    static let keptCapacity = 4096
}

/// The blocks of several modes: a queue for each set of modes that was ever posted to, so that a block waits in one
/// place, and leaves nothing in the others.
///
/// A program names few such sets, and makes them from a fixed set of names, as its modes.
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

    /// Moves every entry that one of `modes` may run to the end of `batch`; says of each mode, those others included,
    /// how many it has lost.
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
