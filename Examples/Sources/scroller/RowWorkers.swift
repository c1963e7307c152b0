import Dispatch
import ExampleSupport
import Reactor

/// The rows of a list. Any thread may compute them.
protocol Rows: Sendable {
    var count: Int { get }
    /// Computes a row, which may take long.
    func text(at row: Int) -> String
}

/// Computes rows on a Dispatch queue, and wakes the loop for each.
///
/// The loop says which rows it wants. Those that it no longer wants, and that no worker has begun, are
/// dropped. So the workers never compute more than a screen ahead of the loop, however fast the list scrolls.
final class RowWorkers: Sendable {
    private struct State {
        /// The rows that no worker has begun, the next one last.
        var wanted: [Int] = []
        var underWay: Set<Int> = []
        /// The rows for the loop to take.
        var computed: [Int: String] = [:]
        var workerCount = 0
        var droppedCount = 0
    }

    /// Workers sleep or wait for a disk more than they compute.
    private static let mostWorkers = 4

    private let source: any Rows
    private let loop: RunLoop
    private let queue = DispatchQueue(label: "rows", attributes: .concurrent)
    private let state = Mutex(State())

    init(_ source: any Rows, for loop: RunLoop) {
        self.source = source
        self.loop = loop
    }

    /// The number of rows that were dropped.
    var droppedCount: Int { state.withLock { $0.droppedCount } }

    /// Asks for `rows`, in this order, in place of all that were asked for before.
    func want(_ rows: [Int]) {
        let newWorkers = state.withLock { state in
            let wanted = rows.filter { !state.underWay.contains($0) && state.computed[$0] == nil }
            state.droppedCount += Set(state.wanted).subtracting(wanted).count
            state.wanted = wanted.reversed()
            let count = max(0, min(Self.mostWorkers, wanted.count) - state.workerCount)
            state.workerCount += count
            return count
        }
        for _ in 0..<newWorkers { queue.async { self.work() } }
    }

    /// Returns the rows that were computed since the last call.
    func takeComputed() -> [Int: String] {
        state.withLock { state in
            defer { state.computed = [:] }
            return state.computed
        }
    }

    private func work() {
        while let row = begin() {
            let text = source.text(at: row)
            state.withLock { state in
                state.underWay.remove(row)
                state.computed[row] = text
            }
            loop.wakeUp()
        }
    }

    /// The next row; nil ends the worker.
    private func begin() -> Int? {
        state.withLock { state in
            guard let row = state.wanted.popLast() else {
                state.workerCount -= 1
                return nil
            }
            state.underWay.insert(row)
            return row
        }
    }
}
