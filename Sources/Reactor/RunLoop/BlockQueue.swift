/// Blocks that wait for a pass in one group of modes, first in, first out.
struct BlockQueue {
    /// A block, numbered in the order of posting so that two queues can be run as one.
    struct Entry {
        let sequence: UInt64
        let isSource: Bool
        var body: Body
    }

    enum Body {
        case spent
        case own(@Sendable () -> Void)
        /// A block that waits in several queues; whichever runs it first takes it.
        case shared(Shared)
    }

    final class Shared {
        private var body: (@Sendable () -> Void)?

        init(_ body: @escaping @Sendable () -> Void) { self.body = body }

        var isTaken: Bool { body == nil }

        func take() -> (@Sendable () -> Void)? { body.take() }
    }

    private(set) var entries: [Entry] = []

    /// Whether nothing is left that has not been run by way of another queue.
    var isEmpty: Bool { entries.allSatisfy(\.isSpent) }

    mutating func append(_ entry: Entry) { entries.append(entry) }

    /// Moves every entry to the end of `batch`.
    mutating func drain(into batch: inout [Entry]) {
        if batch.isEmpty { swap(&entries, &batch) } else { batch.append(contentsOf: entries) }
        entries.removeAll(keepingCapacity: entries.capacity <= Self.keptCapacity)
    }

    /// Storage beyond this is given back after a burst.
    static let keptCapacity = 4096
}

extension BlockQueue.Entry {
    var isSpent: Bool {
        switch body {
        case .spent: true
        case .own: false
        case .shared(let shared): shared.isTaken
        }
    }

    /// The block, unless another queue's turn has run it already. It is let go of here, and so as soon as it
    /// has run.
    mutating func take() -> (@Sendable () -> Void)? {
        var body = BlockQueue.Body.spent
        swap(&body, &self.body)
        switch consume body {
        case .spent: return nil
        case .own(let block): return block
        case .shared(let shared): return shared.take()
        }
    }
}
