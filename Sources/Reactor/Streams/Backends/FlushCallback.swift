/// Called once, when an output has sent all bytes or has failed, unless it is cancelled before.
typealias FlushCallback = Transferred<Callback>

extension FlushCallback {
    convenience init(_ closure: @escaping @Sendable () -> Void) { self.init(Callback(closure)) }

    func callAsFunction() { take()?() }

    /// Releases the closure, which is not called any more.
    func cancel() { _ = take() }
}

/// The callbacks of an output that wait until so many bytes, or messages, have been taken.
struct FlushCallbacks {
    /// How many have been taken.
    private(set) var takenCount = 0
    /// In the order of their counts.
    private var waiting: [(callback: FlushCallback, count: Int)] = []

    var isEmpty: Bool { waiting.isEmpty }

    /// How many are still to be called.
    var waitingCount: Int { waiting.count { $0.callback.isWaiting } }

    /// Adds a callback, which is due when ``takenCount`` is `count`.
    mutating func add(_ callback: FlushCallback, at count: Int) {
        removeEnded()
        let index = waiting.firstIndex { $0.count > count }
        waiting.insert((callback, count), at: index ?? waiting.count)
    }

    /// Removes those that have been cancelled.
    mutating func removeEnded() { waiting.removeAll { !$0.callback.isWaiting } }

    /// Sets the count of those that wait for more than `count`.
    mutating func limit(to count: Int) {
        for index in waiting.indices.reversed() {
            guard waiting[index].count > count else { return }
            waiting[index].count = count
        }
    }

    mutating func take(_ count: Int) { takenCount += count }

    /// Removes the callbacks that are due; all of them if nothing more will be taken.
    mutating func removeDue(all isOver: Bool) -> [FlushCallback] {
        let count = isOver ? waiting.count : waiting.prefix { $0.count <= takenCount }.count
        defer { waiting.removeFirst(count) }
        return waiting.prefix(count).map { $0.callback }
    }
}
