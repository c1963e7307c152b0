/// The observers of one group of modes: those of a lower order first, those of the same order as they were added.
///
/// They are kept as timers are, with the order in the place of the date: each leaves at once, wherever it is. The list
/// in order is made when it is asked for after a change.
struct ObserverList: ~Copyable {
    struct Entry {
        let sequence: UInt64
        let observer: RunLoop.Observer

        func precedes(_ other: Entry) -> Bool {
            (observer.order, sequence) < (other.observer.order, other.sequence)
        }
    }

    /// Every activity that an observer here wants: most passes need not look further.
    private(set) var activities: RunLoop.Activities = []
    private var queue = TimerQueue<Entry>()
    private var ordered: [Entry]?
    /// How many want each activity, by the activity's bit.
    private var counts = [Int](repeating: 0, count: 8)

    var isEmpty: Bool { queue.isEmpty }

    /// The observers, in no order.
    var members: [RunLoop.Observer] { queue.elements.map(\.observer) }

    mutating func inOrder() -> [Entry] {
        if let ordered { return ordered }
        let entries = queue.elements.sorted { $0.precedes($1) }
        ordered = entries
        return entries
    }

    mutating func insert(_ observer: RunLoop.Observer, sequence: UInt64) -> Int32 {
        ordered = nil
        count(observer, 1)
        let entry = Entry(sequence: sequence, observer: observer)
        return queue.insert(entry, date: Int64(observer.order), tolerance: 0, sequence: sequence)
    }

    /// Takes out `observer`, which the caller keeps alive.
    mutating func remove(_ observer: RunLoop.Observer, at slot: Int32) {
        ordered = nil
        count(observer, -1)
        queue.remove(slot)
    }

    private mutating func count(_ observer: RunLoop.Observer, _ change: Int) {
        for bit in counts.indices {
            let activity = RunLoop.Activities(rawValue: 1 << UInt(bit))
            guard observer.activities.contains(activity) else { continue }
            counts[bit] += change
            if counts[bit] > 0 { activities.insert(activity) } else { activities.remove(activity) }
        }
    }
}
