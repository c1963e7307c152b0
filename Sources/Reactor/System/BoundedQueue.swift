/// A bounded first-in, first-out queue between a producer and a consumer. Pure.
///
/// The producer ends it: the consumer gets what is left, and then the failure, if any. The consumer cancels it: what is left
/// is dropped, and the producer gets the failure at once.
struct BoundedQueue<Contents: BoundedQueueContents, Failure: Error> {
    private enum Phase {
        case open
        case ended(Failure?)
        case cancelled(Failure?)
    }

    /// The producer stops at so many elements, or bytes.
    var limit: Int
    var contents = Contents()
    private var phase = Phase.open

    init(limit: Int) { self.limit = limit }

    var isEmpty: Bool { contents.count == 0 }

    /// Whether the producer may put more. There is always room for one.
    var hasRoom: Bool { isOpen && contents.count < max(limit, 1) }

    /// Whether the consumer need not wait: there is something to take, or no more will come.
    var hasResult: Bool { !isEmpty || !isOpen }

    var isOpen: Bool { if case .open = phase { true } else { false } }

    var isCancelled: Bool { if case .cancelled = phase { true } else { false } }

    /// Why the contents end where they do, for the consumer.
    var producerFailure: Failure? { if case .ended(let failure) = phase { failure } else { nil } }

    /// Why the producer's elements are not taken any more.
    var consumerFailure: Failure? { if case .cancelled(let failure) = phase { failure } else { nil } }

    /// The producer has no more. Does nothing unless the queue is open.
    mutating func end(_ failure: Failure? = nil) { if isOpen { phase = .ended(failure) } }

    /// The consumer takes no more. Only the first time counts.
    ///
    /// - Returns: What is dropped, which the caller releases with nothing locked.
    @discardableResult
    mutating func cancel(_ failure: Failure? = nil) -> Contents {
        if !isCancelled { phase = .cancelled(failure) }
        return take()
    }

    /// Moves all contents out.
    mutating func take() -> Contents {
        var taken = Contents()
        swap(&taken, &contents)
        return taken
    }
}

extension BoundedQueue: Sendable where Contents: Sendable {}

/// The contents of a ``BoundedQueue``: elements, or bytes.
protocol BoundedQueueContents {
    init()
    var count: Int { get }
}

extension Array: BoundedQueueContents {}

extension BoundedQueue {
    mutating func put<Element>(_ element: Element) where Contents == [Element] { contents.append(element) }

    /// Takes the first element; nil if there is none.
    mutating func takeFirst<Element>() -> Element? where Contents == [Element] {
        contents.isEmpty ? nil : contents.removeFirst()
    }
}
