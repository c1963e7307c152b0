import ExampleSupport
import Reactor

/// Runs a loop with a timer in each of three modes, in the default mode, in the tracking mode and in the default mode
/// again, as when a user drags an object.
final class Demonstration {
    private(set) var counts = Counts()

    private let loop = RunLoop.current
    private let isQuiet: Bool
    private let start = Deadline.now
    /// The interval of all timers.
    private let interval: Duration
    private var phase = Counts.Phase.before

    init(duration: Duration, isQuiet: Bool) {
        interval = duration / 20
        self.isQuiet = isQuiet
    }

    func run() {
        let modes: [(Counts.TimerName, RunLoop.Mode)] = [
            (.default, .default), (.common, .common), (.tracking, .tracking),
        ]
        log("seconds  default   common    tracking")
        let timers = modes.map { name, mode in
            Timer.scheduled(every: interval, forMode: mode) { timer in self.timerFired(timer, name) }
        }
        Timer.scheduled(after: interval * 6.5) { _ in
            self.drag()
            Timer.scheduled(after: self.interval * 6) { _ in self.loop.stop() }
        }
        loop.run(in: .default)
        for timer in timers { timer.invalidate() }
    }

    /// Called in the default mode; runs the loop in the tracking mode. Until it returns, timers that are only in the
    /// default mode do not fire.
    private func drag() {
        log("\(now)  -- The drag begins. In the tracking mode, the default timer does not fire.")
        phase = .during
        loop.run(in: .tracking, until: .now.advanced(by: interval * 7))
        phase = .after
        log("\(now)  -- The drag ends. The default timer fires once for its missed dates, then on schedule.")
    }

    private func timerFired(_ timer: Timer, _ name: Counts.TimerName) {
        counts[name, phase] += 1
        let lateness = timer.fireDate.duration(to: .now)
        let text = lateness > interval / 2 ? "fired, \(lateness.milliseconds) ms late" : "fired"
        log("\(now)  \(String(repeating: " ", count: 10 * name.column))\(text)")
    }

    private func log(_ line: String) {
        if !isQuiet { MainProgram.printLine(line) }
    }

    /// The seconds since the start, padded to the width of their column.
    private var now: String {
        let milliseconds = start.duration(to: .now).milliseconds
        let fraction = String(milliseconds % 1000 + 1000).dropFirst()
        let text = "\(milliseconds / 1000).\(fraction)"
        return String(repeating: " ", count: max(0, 7 - text.count)) + text
    }
}

extension Duration {
    fileprivate var milliseconds: Int { Int(self / .milliseconds(1)) }
}
