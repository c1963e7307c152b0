/// A first-in, first-out queue. It releases an element when it is taken, and allocates no more once it has been filled. Pure.
package struct Queue<Element> {
    /// Nil in the place of those that have been taken.
    @usableFromInline var elements: [Element?] = []
    @usableFromInline var first = 0

    @inlinable
    package init() {}

    @inlinable package var count: Int { elements.count - first }
    @inlinable package var isEmpty: Bool { count == 0 }
    @inlinable package var last: Element? { isEmpty ? nil : elements[elements.count - 1] }

    @inlinable
    package mutating func append(_ element: Element) {
        // Moves no more elements than have left the queue since the last move.
        if first > 0, first >= count, elements.count == elements.capacity {
            elements.removeFirst(first)
            first = 0
        }
        elements.append(element)
    }

    /// Takes the elements of `other`. Where this is empty, it takes the storage and leaves its own.
    @inlinable
    package mutating func takeAll(of other: inout Queue) {
        if isEmpty { return swap(&self, &other) }
        for case let element? in other.elements[other.first...] { append(element) }
        other.reset()
    }

    @inlinable
    package mutating func popFirst() -> Element? {
        guard !isEmpty else { return nil }
        let element = elements[first].take()
        first += 1
        if isEmpty { reset() }
        return element
    }

    /// - Precondition: The queue is not empty.
    @inlinable
    package mutating func removeLast() {
        elements.removeLast()
        if isEmpty { reset() }
    }

    /// Removes and returns all elements.
    @inlinable
    package mutating func removeAll() -> [Element] {
        defer { (elements, first) = ([], 0) }
        return elements[first...].compactMap { $0 }
    }

    @inlinable
    mutating func reset() {
        elements.removeAll(keepingCapacity: elements.capacity <= Self.keptCapacity)
        first = 0
    }

    /// Up to 64 KB of storage are kept for reuse; what a burst needed beyond that is freed.
    @inlinable static var keptCapacity: Int { 65_536 / MemoryLayout<Element?>.stride }
}

extension Queue: Sendable where Element: Sendable {}
