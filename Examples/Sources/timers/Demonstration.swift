import Reactor

/// A loop with a timer in each of three modes goes from the default mode into the tracking mode and back, as
/// when a user drags something.
final class Demonstration {
    private(set) var counts = Counts()

    private let loop = RunLoop.current
    private let isSilent: Bool
    private let beginning = Deadline.now
    /// All three timers have this interval.
    private let beat: Duration
    private var phase = Counts.Phase.before

    init(_ length: Duration, isSilent: Bool) {
        beat = length / 20
        self.isSilent = isSilent
    }

    func run() {
        let modes: [(Counts.Clock, RunLoop.Mode)] = [
            (.default, .default), (.common, .common), (.tracking, .tracking),
        ]
        tell("seconds  default   common    tracking")
        let timers = modes.map { clock, mode in
            Timer.scheduled(every: beat, forMode: mode) { timer in self.tick(clock, timer) }
        }
        loop.perform(after: beat * 6.5) {
            self.drag()
            self.loop.perform(after: self.beat * 6) { self.loop.stop() }
        }
        loop.run(in: .default)
        for timer in timers { timer.invalidate() }
    }

    /// A callout of the default mode that runs the loop itself, in another mode: until it returns, whatever
    /// was added to the default mode only stands still.
    private func drag() {
        tell("\(now)  -- The drag begins. The loop runs in the tracking mode, and the default timer rests.")
        phase = .during
        loop.run(in: .tracking, until: .now.advanced(by: beat * 7))
        phase = .after
        tell("\(now)  -- The drag has ended. The default timer fires once for all it missed, then in step.")
    }

    private func tick(_ clock: Counts.Clock, _ timer: Timer) {
        counts[clock, phase] += 1
        let lateness = timer.fireDate.duration(to: .now)
        let remark = lateness > beat / 2 ? "tick, \(lateness.milliseconds) ms late" : "tick"
        tell("\(now)  \(String(repeating: " ", count: 10 * clock.column))\(remark)")
    }

    private func tell(_ line: String) {
        if !isSilent { print(line) }
    }

    /// The seconds since the beginning, as wide as their heading.
    private var now: String {
        let milliseconds = beginning.duration(to: .now).milliseconds
        let fraction = String(milliseconds % 1000 + 1000).dropFirst()
        let text = "\(milliseconds / 1000).\(fraction)"
        return String(repeating: " ", count: max(0, 7 - text.count)) + text
    }
}

extension Duration {
    fileprivate var milliseconds: Int { Int(self / .milliseconds(1)) }
}
