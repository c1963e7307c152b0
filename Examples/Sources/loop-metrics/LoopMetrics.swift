import CoreMetrics
import Reactor

/// Publishes a loop's statistics through swift-metrics: copy this file into a program that has a metrics backend.
///
/// A timer of the loop itself reads them. Its tolerance is half its interval, so it rarely wakes the loop alone.
final class LoopMetrics {
    private typealias Number = KeyPath<RunLoop.Statistics, Int>

    private static var counted: [(String, Number)] {
        [("passes", \.passes), ("wake_ups", \.wakeUps), ("callbacks", \.callbacks)]
    }
    private static var measured: [(String, Number)] {
        [("pending_blocks", \.pendingBlocks), ("pending_jobs", \.pendingJobs)]
    }

    private let timer: Reactor.Timer

    /// - Parameters:
    ///   - loop: The calling thread's loop.
    ///   - label: The value of the dimension "loop".
    ///   - interval: The time between two readings.
    init(of loop: RunLoop, label: String, every interval: Duration = .seconds(10)) {
        let dimensions = [("loop", label)]
        let counters = Self.counted.map {
            (Counter(label: "reactor_\($0)_total", dimensions: dimensions), $1)
        }
        let gauges = Self.measured.map { (Gauge(label: "reactor_\($0)", dimensions: dimensions), $1) }
        let lateness = Gauge(label: "reactor_timer_lateness_seconds", dimensions: dimensions)
        let busy = Gauge(label: "reactor_callback_seconds", dimensions: dimensions)
        let worked = Gauge(label: "reactor_processor_seconds", dimensions: dimensions)
        var last = loop.statistics
        timer = .scheduled(every: interval, forMode: .common, tolerance: interval / 2, label: "metrics") {
            _ in
            let now = loop.statistics
            for (counter, number) in counters {
                counter.increment(by: now[keyPath: number] - last[keyPath: number])
            }
            for (gauge, number) in gauges { gauge.record(now[keyPath: number]) }
            let firings = max(now.timerFirings - last.timerFirings, 1)
            lateness.record((now.timerLateness - last.timerLateness) / .seconds(firings))
            busy.record((now.callbackTime - last.callbackTime) / .seconds(1))
            worked.record((now.processorTime - last.processorTime) / .seconds(1))
            last = now
        }
    }

    deinit { timer.invalidate() }
}
