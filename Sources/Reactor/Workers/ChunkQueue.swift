/// Chunks that wait, first in, first out, in room for a fixed number of them.
struct ChunkQueue {
    private var slots: [Chunk?] = []
    private var head = 0
    private(set) var count = 0

    var isEmpty: Bool { count == 0 }

    /// Adds a chunk at the end.
    ///
    /// - Parameter capacity: The most chunks that there ever are; always the same.
    mutating func append(_ chunk: Chunk, capacity: Int) {
        if slots.isEmpty { slots = Array(repeating: nil, count: capacity) }
        precondition(count < slots.count, "more chunks than the limits allow")
        slots[(head + count) % slots.count] = chunk
        count += 1
    }

    mutating func popFirst() -> Chunk? {
        guard count > 0 else { return nil }
        defer {
            head = (head + 1) % slots.count
            count -= 1
        }
        return slots[head].take()
    }
}
