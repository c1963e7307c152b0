/// A list that nearly always has one element, which needs no memory of its own.
struct ShortList<Element> {
    private(set) var first: Element?
    private var others: [Element] = []

    var isEmpty: Bool { first == nil }

    var hasOthers: Bool { !others.isEmpty }

    mutating func append(_ element: Element) {
        if first == nil { first = element } else { others.append(element) }
    }

    /// Takes out the elements that `isDone` says yes to.
    mutating func removeAll(where isDone: (Element) -> Bool) {
        others.removeAll(where: isDone)
        if let element = first, isDone(element) { first = others.popLast() }
    }

    /// Takes out one element that `isWanted` says yes to.
    mutating func takeFirst(where isWanted: (Element) -> Bool) -> Element? {
        if let element = first, isWanted(element) {
            first = others.popLast()
            return element
        }
        return others.firstIndex(where: isWanted).map { others.remove(at: $0) }
    }

    /// Changes one element that `isWanted` says yes to; nil if there is none.
    @inline(__always)
    mutating func update<Answer>(
        where isWanted: (Element) -> Bool, _ change: (inout Element) -> Answer
    ) -> Answer? {
        guard let element = first else { return nil }
        if isWanted(element) { return change(&first!) }
        return others.firstIndex(where: isWanted).map { change(&others[$0]) }
    }
}

extension ShortList: Sequence {
    func makeIterator() -> Iterator { Iterator(first: first, others: others[...]) }

    struct Iterator: IteratorProtocol {
        fileprivate var first: Element?
        fileprivate var others: ArraySlice<Element>

        mutating func next() -> Element? { first.take() ?? others.popFirst() }
    }
}

extension ShortList: Sendable where Element: Sendable {}
