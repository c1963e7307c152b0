import CMalloc
import Reactor

/// A timer of ten milliseconds in the common modes: ticks as long as the loop is free, and measures how late.
final class Heartbeat {
    private(set) var tickCount = 0
    /// In microseconds.
    private(set) var lateness = Histogram()
    /// The most bytes in use of those that were looked at: at first, at each tick, and when somebody asks.
    var peakHeap: Int { max(greatestHeap, Self.heap) }
    var onTick: () -> Void = {}

    private var greatestHeap = heap
    private var timer: Timer?

    init() {
        timer = Timer.scheduled(every: .milliseconds(10), forMode: .common) { [unowned self] timer in
            tick(late: timer.fireDate.duration(to: .now))
        }
    }

    private func tick(late: Duration) {
        tickCount += 1
        lateness.add(Int(late / .microseconds(1)))
        greatestHeap = peakHeap
        onTick()
    }

    /// Ends it; the loop has nothing of it left.
    func stop() { timer?.invalidate() }

    /// The bytes that malloc(3) has given out and not got back, in all arenas and in mappings of their own
    /// (mallinfo2(3)). glibc keeps no record of the greatest value there ever was; hence the samples. What
    /// lies in the threads' caches counts as given out.
    private static var heap: Int {
        let statistics = mallinfo2()
        return Int(statistics.uordblks + statistics.hblkhd)
    }
}
