import Glibc
import Measuring
import Reactor

/// Adds timers that are all due when the loop first runs, and runs it until they have fired.
func fireAtOnce(_ count: Int) -> Never {
    let soon: UInt64 = 10_000_000
    var random = RandomNumbers()
    let delays = (0..<count).map { _ in random.next(below: soon) }
    var remaining = count
    let start = processorTime()
    for delay in delays {
        Timer.scheduled(after: .nanoseconds(delay)) { _ in
            remaining -= 1
            if remaining == 0 { RunLoop.current.stop() }
        }
    }
    usleep(UInt32(soon / 1000) + 2000)
    RunLoop.current.run(in: .default)
    report([fixed(Double(processorTime() - start) / Double(count))])
}
