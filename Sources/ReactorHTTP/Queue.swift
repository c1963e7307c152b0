/// A FIFO that releases elements as they are removed; an `ArraySlice` keeps them until it is copied. Pure.
///
/// Not the generic one of Reactor: from another module that cost a transfer 12,000 instructions, 4 %.
struct Queue<Element> {
    /// How many taken elements are removed at once, at least, so that the others are rarely moved.
    private static var leastRemoved: Int { 32 }

    /// Nil in the place of those that have been taken.
    private var elements: [Element?] = []
    private var first = 0

    var count: Int { elements.count - first }
    var isEmpty: Bool { count == 0 }

    mutating func append(_ element: Element) { elements.append(element) }

    mutating func popFirst() -> Element? {
        guard !isEmpty else { return nil }
        let element = elements[first].take()
        first += 1
        if isEmpty {
            elements.removeAll(keepingCapacity: true)
            first = 0
        } else if first >= Self.leastRemoved, first >= count {
            elements.removeFirst(first)
            first = 0
        }
        return element
    }

    var last: Element? { isEmpty ? nil : elements.last.flatMap { $0 } }

    /// - Precondition: The queue is not empty.
    mutating func removeLast() { elements.removeLast() }

    /// Removes and returns all elements.
    mutating func removeAll() -> [Element] {
        defer { (elements, first) = ([], 0) }
        return elements[first...].compactMap { $0 }
    }
}

extension Queue: Sendable where Element: Sendable {}
