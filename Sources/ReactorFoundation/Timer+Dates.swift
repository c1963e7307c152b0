public import Foundation
public import Reactor

extension Reactor.Timer {
    /// Makes a timer that fires at `date`, and then, if it repeats, every `interval` seconds from there on.
    ///
    /// It does nothing until it is added to a loop, whose thread then calls the closure. As in Cocoa, a date that has
    /// passed means at once, and the phase of a repeating timer begins now; its interval is at least 0.1 ms.
    /// - Precondition: Date and interval are numbers.
    public convenience init(
        fire date: Date, interval: TimeInterval, repeats: Bool, block: @escaping @Sendable (Timer) -> Void
    ) {
        self.init(
            fireDate: Deadline(date), interval: Duration(timeInterval: interval), repeats: repeats,
            handler: block)
    }

    /// Makes a timer that fires `interval` seconds from now, and, if it repeats, every `interval` seconds.
    ///
    /// Where Foundation on Linux differs: there the first firing is at once, and a repeating timer without an interval
    /// fires once.
    /// - Precondition: The interval is a number.
    public convenience init(
        timeInterval interval: TimeInterval, repeats: Bool, block: @escaping @Sendable (Timer) -> Void
    ) {
        self.init(interval: Duration(timeInterval: interval), repeats: repeats, handler: block)
    }

    /// Makes a timer that is invalid from the start: what Cocoa code keeps in a variable until there is a real one.
    public convenience init() {
        self.init(interval: .zero) { _ in }
        invalidate()
    }

    /// Makes a timer as ``init(timeInterval:repeats:block:)`` does, and adds it to the default mode of the calling
    /// thread's loop.
    @discardableResult
    public static func scheduledTimer(
        withTimeInterval interval: TimeInterval, repeats: Bool, block: @escaping @Sendable (Timer) -> Void
    ) -> Timer {
        let timer = Timer(timeInterval: interval, repeats: repeats, block: block)
        RunLoop.current.add(timer, forMode: .default)
        return timer
    }

    /// When the timer fires next; during its callout, the date being served; of an invalid timer, its last date.
    ///
    /// Setting it moves the timer in all its modes and starts a new phase there; a date that has passed means at once.
    /// On an invalid timer it does nothing. It is what the monotonic clock will make of the timer: somebody who sets the
    /// system's date changes what this says, and not when the timer fires.
    public var fireDate: Date {
        get { Date(deadline) }
        set { deadline = Deadline(newValue) }
    }

    /// The seconds between firings; zero for a timer that fires once.
    public var timeInterval: TimeInterval { interval.timeInterval }

    /// How late the timer may be, in seconds, so that timers whose windows overlap share one wake-up. Zero unless it is
    /// set; at most half the interval of a repeating timer.
    ///
    /// Where Foundation on Linux differs: there it is ignored.
    public var tolerance: TimeInterval {
        get { leeway.timeInterval }
        set { leeway = Duration(timeInterval: newValue) }
    }

    /// What Cocoa's timers with a target are given for it: nil, as none has a target here.
    public var userInfo: Any? { nil }
}
