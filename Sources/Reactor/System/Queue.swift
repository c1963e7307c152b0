/// A first-in, first-out queue. It releases an element when it is taken, and allocates no more once it has been filled. Pure.
///
/// Inlinable: as a call of another module, it took 12,000 instructions of an HTTP transfer's 240,000.
@usableFromInline package struct Queue<Element> {
    /// Nil in the place of those that have been taken.
    @usableFromInline var elements: [Element?] = []
    @usableFromInline var first = 0

    @inlinable package init() {}

    @inlinable package var count: Int { elements.count - first }
    @inlinable package var isEmpty: Bool { count == 0 }

    /// The element that is taken next; nil if there is none.
    var front: Element? { isEmpty ? nil : self[0] }

    /// The element that was appended last; nil if there is none.
    @inlinable package var last: Element? { isEmpty ? nil : self[count - 1] }

    /// The element at `index`, counted from the one that is taken next.
    @inlinable package subscript(index: Int) -> Element {
        get { elements[first + index]! }
        set { elements[first + index] = newValue }
    }

    @inlinable package mutating func append(_ element: Element) {
        // Moves no more elements than have left the queue since the last move.
        if first > 0, first >= count, elements.count == elements.capacity {
            elements.removeFirst(first)
            first = 0
        }
        elements.append(element)
    }

    /// Takes the elements of `other`. Where this is empty, it takes the storage and leaves its own.
    mutating func takeAll(of other: inout Queue) {
        if isEmpty { return swap(&self, &other) }
        for case let element? in other.elements[other.first...] { append(element) }
        other.reset()
    }

    @inlinable package mutating func popFirst() -> Element? {
        guard !isEmpty else { return nil }
        let element = elements[first].take()
        first += 1
        if isEmpty { reset() }
        return element
    }

    /// - Precondition: The queue is not empty.
    @inlinable package mutating func removeLast() {
        elements.removeLast()
        if isEmpty { reset() }
    }

    /// Puts `element` in the place of the first one that it replaces. False if there is none.
    mutating func replaceFirst(with element: Element, where isReplaced: (Element) -> Bool) -> Bool {
        guard let index = elements[first...].firstIndex(where: { isReplaced($0!) }) else { return false }
        elements[index] = element
        return true
    }

    mutating func removeAll(where isRemoved: (Element) -> Bool) {
        elements.removeSubrange(..<first)
        first = 0
        elements.removeAll { isRemoved($0!) }
    }

    @usableFromInline mutating func reset() {
        elements.removeAll(keepingCapacity: elements.capacity <= Self.keptCapacity)
        first = 0
    }

    /// Up to 64 KB of storage are kept for reuse; what a burst needed beyond that is freed.
    @usableFromInline static var keptCapacity: Int { 65_536 / MemoryLayout<Element?>.stride }
}

extension Queue: Sendable where Element: Sendable {}
