/// An array that nearly always has one element, which it stores inline.
struct SmallArray<Element> {
    private(set) var first: Element?
    private var others: [Element] = []

    init() {}

    init(_ first: Element?, _ others: [Element]) { (self.first, self.others) = (first, others) }

    var isEmpty: Bool { first == nil }

    private var hasOthers: Bool { !others.isEmpty }

    /// Calls `body` with each element. An iterator would copy the array, and count references for that.
    @inline(__always)
    func each<Failure>(_ body: (Element) throws(Failure) -> Void) throws(Failure) {
        if let first { try body(first) }
        if hasOthers { for element in others { try body(element) } }
    }

    mutating func append(_ element: Element) {
        if first == nil { first = element } else { others.append(element) }
    }

    /// Removes an element that is unwanted. Returns whether there was one.
    mutating func removeFirst(where isUnwanted: (Element) -> Bool) -> Bool {
        if let first, isUnwanted(first) {
            self.first = others.popLast()
            return true
        }
        guard let index = others.firstIndex(where: isUnwanted) else { return false }
        others.remove(at: index)
        return true
    }

    mutating func removeAll(where isUnwanted: (Element) -> Bool) {
        if hasOthers { others.removeAll(where: isUnwanted) }
        if let first, isUnwanted(first) { self.first = hasOthers ? others.removeLast() : nil }
    }
}

extension SmallArray: Sequence {
    func makeIterator() -> Iterator { Iterator(first: first, others: hasOthers ? others[...] : nil) }

    struct Iterator: IteratorProtocol {
        fileprivate var first: Element?
        fileprivate var others: ArraySlice<Element>?

        mutating func next() -> Element? { first.take() ?? others?.popFirst() }
    }
}

extension SmallArray: Sendable where Element: Sendable {}
