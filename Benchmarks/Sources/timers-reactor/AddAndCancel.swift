import Measuring
import Reactor

func addAndCancel(_ count: Int) -> Never {
    var random = RandomNumbers()
    let delays = (0..<count).map { _ in 10_000_000_000 + random.next(below: 50_000_000_000) }
    _ = RunLoop.current  // creates the loop before the measurement, as the peers do
    let (firstMemory, start) = (residentBytes(), processorTime())
    var timers: [Timer] = []
    for delay in delays { timers.append(Timer.scheduled(after: .nanoseconds(delay)) { _ in }) }
    let (added, memory) = (processorTime(), residentBytes())

    let cancelling = processorTime()
    for timer in timers { timer.invalidate() }
    timers.removeAll()
    let cancelled = processorTime()

    let each = 1 / Double(count)
    report([
        fixed(Double(added - start) * each), fixed(Double(cancelled - cancelling) * each),
        fixed(Double(memory - firstMemory) * each, 0),
    ])
}
