import CMalloc
import Reactor

/// A 10 ms timer in the common modes that measures how late the loop is, and samples the heap's size.
final class Heartbeat {
    private(set) var tickCount = 0
    /// How late the ticks were, in microseconds.
    private(set) var lateness = Histogram()
    /// The largest size of the heap in the samples, which are taken at the start, at each tick, and by this property.
    var peakHeap: Int { max(largestSample, Self.heapSize) }
    var onTick: () -> Void = {}

    private var largestSample = heapSize
    private var timer: Timer?

    init() {
        timer = Timer.scheduled(every: .milliseconds(10), forMode: .common) { [unowned self] timer in
            tick(lateness: timer.fireDate.duration(to: .now))
        }
    }

    private func tick(lateness: Duration) {
        tickCount += 1
        self.lateness.add(Int(lateness / .microseconds(1)))
        largestSample = peakHeap
        onTick()
    }

    /// Removes the timer from the loop.
    func stop() { timer?.invalidate() }

    /// The bytes that malloc(3) has allocated in all arenas and memory mappings, including its per-thread caches
    /// (mallinfo2(3)). glibc does not record the maximum, so it is sampled.
    private static var heapSize: Int {
        let statistics = mallinfo2()
        return Int(statistics.uordblks + statistics.hblkhd)
    }
}
