import Measuring
import Reactor

/// Runs timers and records the lateness of each firing.
final class Firings {
    private let period: Int64 = 10_000_000
    private var lateness: [Int64]
    private var due: [Int64] = []
    private var isOver = false

    /// - Parameter capacity: The maximum number of firings. Their storage is allocated and touched in advance.
    init(capacity: Int) {
        lateness = Array(repeating: 0, count: capacity)
        lateness.removeAll(keepingCapacity: true)
    }

    func fireOnce(_ count: Int) -> Never {
        let base = now() + 1_000_000_000
        var random = RandomNumbers()
        due = (0..<count).map { _ in base + random.next(below: 100_000_000) }
        for index in due.indices {
            Timer.scheduled(after: .nanoseconds(due[index] - now())) { [self] _ in
                lateness.append(now() - due[index])
                if lateness.count == count { RunLoop.current.stop() }
            }
        }
        precondition(now() < base, "adding the timers took longer than a second")
        let cost = runLoop()
        let all = lateness.sorted()
        report([fixed(Double(cost) / Double(all.count))] + late(all, 50, 99, 100) + [early(all)])
    }

    func fireRepeatedly(_ count: Int, seconds: Int) -> Never {
        let end = now() + Int64(seconds) * 1_000_000_000
        for index in 0..<count {
            due.append(now() + period)
            Timer.scheduled(every: .nanoseconds(period)) { [self] _ in fired(index, end: end) }
        }
        let cost = runLoop()
        let all = lateness.sorted()
        let share = 100 * Double(all.count) / Double(count * 100 * seconds)
        report([fixed(Double(cost) / Double(all.count)), fixed(share)] + late(all, 50, 99) + [early(all)])
    }

    private func fired(_ index: Int, end: Int64) {
        guard !isOver else { return }
        let time = now()
        lateness.append(time - due[index])
        due[index] += period
        guard time >= end else { return }
        isOver = true
        RunLoop.current.stop()
    }

    private func runLoop() -> Int64 {
        let start = processorTime()
        RunLoop.current.run(in: .default)
        return processorTime() - start
    }

    private func late(_ all: [Int64], _ percents: Double...) -> [String] {
        percents.map { fixed(Double(percentile($0, of: all)) / 1e3) }
    }

    private func early(_ all: [Int64]) -> String { String(all.count { $0 < 0 }) }
}
