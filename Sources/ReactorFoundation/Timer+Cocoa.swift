public import Foundation
public import Reactor

extension Reactor.Timer {
    /// Creates a timer that fires at `date` and, if it repeats, every `interval` seconds after that.
    ///
    /// The timer fires only after it is added to a loop, on the loop's thread. As in Cocoa, a date in the
    /// past fires at once, and a repeating timer's intervals then count from now. The interval of a repeating
    /// timer is at least 0.1 ms.
    /// - Precondition: Neither `date` nor `interval` is NaN.
    public convenience init(
        fire date: Date, interval: TimeInterval, repeats: Bool, block: @escaping @Sendable (Timer) -> Void
    ) {
        self.init(
            fireDate: Deadline(date), interval: Duration(timeInterval: interval), repeats: repeats,
            handler: block)
    }

    /// Creates a timer that fires `interval` seconds from now and, if it repeats, every `interval` seconds
    /// after that.
    ///
    /// Foundation on Linux fires the first time at once, and fires a repeating timer with no interval only
    /// once.
    /// - Precondition: `interval` is not NaN.
    public convenience init(
        timeInterval interval: TimeInterval, repeats: Bool, block: @escaping @Sendable (Timer) -> Void
    ) {
        self.init(interval: Duration(timeInterval: interval), repeats: repeats, handler: block)
    }

    /// Creates an invalid timer, which Cocoa code uses as a placeholder.
    public convenience init() {
        self.init(interval: .zero) { _ in }
        invalidate()
    }

    /// Creates a timer like ``init(timeInterval:repeats:block:)`` and adds it to the default mode of the
    /// calling thread's loop.
    @discardableResult
    public static func scheduledTimer(
        withTimeInterval interval: TimeInterval, repeats: Bool, block: @escaping @Sendable (Timer) -> Void
    ) -> Timer {
        let timer = Timer(timeInterval: interval, repeats: repeats, block: block)
        RunLoop.current.add(timer, forMode: .default)
        return timer
    }

    /// The date of the next firing. Inside the timer's block, the date of the current firing; for an invalid
    /// timer, its last date.
    ///
    /// Setting the date moves the timer in all its modes, and its intervals count from the new date. A date
    /// in the past fires at once. Setting the date of an invalid timer does nothing.
    ///
    /// Timers follow the monotonic clock: setting the system's date changes the value of this property, not
    /// the moment at which the timer fires.
    public var fireDate: Date {
        get { Date(deadline) }
        set { deadline = Deadline(newValue) }
    }

    /// The seconds between firings; zero for a timer that does not repeat.
    public var timeInterval: TimeInterval { interval.timeInterval }

    /// The seconds by which the timer may be late, so that timers whose windows overlap share one wake-up.
    /// Zero by default; at most half the interval of a repeating timer.
    ///
    /// Foundation on Linux ignores the tolerance.
    public var tolerance: TimeInterval {
        get { leeway.timeInterval }
        set { leeway = Duration(timeInterval: newValue) }
    }

    /// Always nil: only timers with a target and a selector, which Linux does not have, carry user info.
    public var userInfo: Any? { nil }
}
