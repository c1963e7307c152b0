import Synchronization

/// A signal of a source, numbered in the order in which the process makes them.
struct Signal: Equatable {
    let number: UInt64

    /// Before every signal.
    static var none: Signal { Signal(number: 0) }

    static func next() -> Signal { Signal(number: last.add(1, ordering: .relaxed).newValue) }

    private static let last = Atomic<UInt64>(0)
}

/// The sources of one group of modes that wait to be served: those of a lower order first, those of the same order as
/// they were signalled.
///
/// They are kept as timers are, with the order in the place of the date: each leaves at once, wherever it is.
struct SignalQueue: ~Copyable {
    /// A source, and the signal that it waits with.
    struct Entry {
        let source: RunLoop.Source
        let signal: Signal

        func precedes(_ other: Entry) -> Bool {
            (source.order, signal.number) < (other.source.order, other.signal.number)
        }
    }

    private var queue = TimerQueue<RunLoop.Source>()

    var isEmpty: Bool { queue.isEmpty }

    mutating func insert(_ source: RunLoop.Source, _ signal: Signal) -> Int32 {
        queue.insert(source, date: Int64(source.order), tolerance: 0, sequence: signal.number)
    }

    mutating func remove(_ slot: Int32) { queue.remove(slot) }

    /// The first of those that were signalled before `limit`.
    func first(before limit: Signal) -> Entry? {
        guard let node = queue.firstDue(at: .max, filedBefore: limit.number), let source = queue[node.slot]
        else { return nil }
        return Entry(source: source, signal: Signal(number: node.sequence))
    }
}
