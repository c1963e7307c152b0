import CReactorLinux
import Glibc
import SystemPackage

/// Calls a closure on a run loop's thread at a date of the wall clock, or of a clock that continues while the system is
/// suspended.
///
/// A ``Timer`` uses the monotonic clock, which cannot be set, and stops while the system is suspended. A timer on the wall
/// clock follows it: when the clock is set, the closure gets ``Event/clockWasSet``, and the timer fires if its date has passed.
///
/// ```swift
/// let alarm = try ClockTimer(.wallClock, at: ClockTimer.Clock.wallClock.now + .seconds(3600)) { timer, event in
///     print(event)
/// }
/// try RunLoop.current.add(alarm, forMode: .default)
/// ```
///
/// Firings while the loop is busy or runs in another mode are combined into one. The closure is called and released on the
/// loop's thread, and may capture anything. The loop retains the timer until it is cancelled. A timer and its loop belong to
/// one thread; while it is in a loop, every method traps on another. In async code, use
/// ``RunLoop/firings(of:at:every:inModes:)``.
///
/// Each timer uses a descriptor: timerfd_create(2), with `TFD_TIMER_CANCEL_ON_SET`. It does not wake a suspended system.
public final class ClockTimer: EventSource {
    /// A clock of the system.
    @nonexhaustive public enum Clock: Sendable {
        /// The date and time, since 1970-01-01 00:00 UTC (`CLOCK_REALTIME`). It may be set.
        case wallClock
        /// The time since the system started, including while it was suspended (`CLOCK_BOOTTIME`).
        case bootTime

        /// The present moment.
        public var now: Instant {
            Instant(sinceEpoch: .nanoseconds(reactor_clock_nanoseconds(identifier)))
        }

        fileprivate var name: String { self == .wallClock ? "wall clock" : "boot time" }

        fileprivate var identifier: clockid_t { self == .wallClock ? CLOCK_REALTIME : CLOCK_BOOTTIME }
    }

    /// A date of a ``Clock``. Dates of different clocks have nothing in common; ReactorFoundation makes those of the wall clock
    /// from a `Date`, and back.
    public struct Instant: InstantProtocol, Sendable {
        /// The time from the clock's epoch to the date; negative before it.
        public var sinceEpoch: Duration

        /// The date that is `duration` after the clock's epoch.
        public init(sinceEpoch duration: Duration) { sinceEpoch = duration }

        /// The date `duration` later.
        public func advanced(by duration: Duration) -> Instant { Instant(sinceEpoch: sinceEpoch + duration) }

        /// How much later `other` is; negative when it is earlier.
        public func duration(to other: Instant) -> Duration { other.sinceEpoch - sinceEpoch }

        /// The date `duration` after `instant`.
        public static func + (instant: Instant, duration: Duration) -> Instant {
            instant.advanced(by: duration)
        }

        /// The date `duration` before `instant`.
        public static func - (instant: Instant, duration: Duration) -> Instant {
            instant.advanced(by: .zero - duration)
        }

        /// The duration from `right` to `left`; negative when `left` is earlier.
        public static func - (left: Instant, right: Instant) -> Duration { right.duration(to: left) }

        /// Whether `left` comes before `right`.
        public static func < (left: Instant, right: Instant) -> Bool { left.sinceEpoch < right.sinceEpoch }
    }

    /// Why the closure is called.
    @nonexhaustive public enum Event: Sendable, Hashable {
        /// The fire date has come. `count` is above one if more intervals have passed since.
        case fired(count: Int)
        /// The wall clock was set. The fire date stays.
        case clockWasSet
    }

    /// The clock.
    public let clock: Clock
    /// The time between firings, in whole nanoseconds; nil for one firing.
    package let interval: Duration?
    private var date: Instant?
    /// The firings before the epoch, which the kernel has no dates for.
    private var earlyCount = 0
    /// Whether ``Event/clockWasSet`` is to be delivered.
    private var wasSet = false
    private var handler: ((ClockTimer, Event) -> Void)?
    private let owner: DescriptorOwner

    /// Creates a timer, which calls nothing until it is added to a loop.
    ///
    /// - Parameters:
    ///   - clock: The clock.
    ///   - date: When to fire, on that clock; nil for not yet.
    ///   - interval: The time between this and further firings, on the same clock, at least a nanosecond; nil
    ///     for none.
    ///   - handler: Called with the timer and what has happened.
    /// - Throws: ``IOError`` with an error of timerfd_create(2): `Errno.tooManyOpenFiles`, `Errno.noMemory`.
    /// - Precondition: `interval` is nil or positive.
    public init(
        _ clock: Clock, at date: Instant?, every interval: Duration? = nil,
        handler: @escaping (ClockTimer, Event) -> Void
    ) throws(IOError) {
        require(interval.map { $0 > .zero } ?? true, "ClockTimer needs a positive interval.")
        let number = try attempt(.create, "a timer on the \(clock.name)") { () throws(Errno) in
            try SystemCall.make {
                timerfd_create(clock.identifier, CInt(TFD_CLOEXEC) | CInt(TFD_NONBLOCK))
            }
        }
        (self.clock, self.date, self.handler) = (clock, date, handler)
        self.interval = interval.map { .nanoseconds(max($0.wholeNanoseconds, 1)) }
        owner = DescriptorOwner(of: number)
        super.init(number, for: .readable)
        arm()
    }

    deinit { releaseResources() }

    /// When the timer fires next, on its clock; nil if it does not. Setting it does not change
    /// the interval.
    public var fireDate: Instant? {
        get {
            requireLoopThread()
            return date
        }
        set {
            requireLoopThread()
            date = newValue
            if handler != nil { arm() }
        }
    }

    override var summary: String {
        guard isValid else { return "timer on the \(clock.name) (cancelled)" }
        return "timer on the \(clock.name): \(date.map { "in \($0 - clock.now)" } ?? "never")"
    }

    override func releaseResources() {
        guard let dropped = handler.take() else { return }
        currentTimeSource?.disarm(number)
        owner.close(number)
        withExtendedLifetime(dropped) {}
    }

    private func arm() {
        // A wall-clock timer without a date waits until the clock is set.
        let never: Int64 = clock == .wallClock ? .max : 0
        var first = date?.sinceEpoch.wholeNanoseconds ?? never
        earlyCount = 0
        if let date = date?.sinceEpoch, date <= .zero {
            first = 1
            if let interval {
                let (count, rest) = (.zero - date).attoseconds.quotientAndRemainder(
                    dividingBy: interval.attoseconds)
                earlyCount = Int(clamping: count + 1)
                first = (interval - Duration(attoseconds: rest)).wholeNanoseconds
                markReady()
            }
        }
        let interval = interval?.wholeNanoseconds ?? 0
        if let source = currentTimeSource {
            return source.arm(number, on: clock.identifier, at: first, every: interval)
        }
        // ECANCELED: the kernel has armed the timer, and says that the clock was set only here.
        let isUnset = callOnOwnDescriptor("timerfd_settime", expecting: .canceled) {
            reactor_timerfd_set(number, first, interval, clock == .wallClock)
        }
        if !isUnset {
            wasSet = true
            markReady()
        }
    }

    // MARK: On the loop's thread

    override var subject: String { "a timer on the \(clock.name)" }

    override var noun: String { "timer on the \(clock.name)" }

    override var silence: String { date == nil ? "it has no fire date" : "its date has not come" }

    override func serve(_ readiness: Readiness) -> Bool {
        let count = wasSet ? 0 : takeFirings()
        if wasSet {
            wasSet = false
            handler?(self, .clockWasSet)
            return true
        }
        guard count > 0 else { return false }
        date = interval.flatMap { interval in date.map { $0 + interval * count } }
        handler?(self, .fired(count: count))
        return true
    }

    /// How often the timer has fired since the last call.
    private func takeFirings() -> Int {
        var count: UInt64 = 0
        do throws(Errno) {
            let virtual = try currentTimeSource?.takeFirings(of: number)
            count = if let virtual { virtual } else { try SystemCall.readCount(number) }
        } catch .canceled {
            wasSet = true
            // The kernel has dropped the firings that the new time has brought.
            arm()
            return 0
        } catch {}
        defer { earlyCount = 0 }
        return Int(clamping: count + UInt64(earlyCount))
    }
}
