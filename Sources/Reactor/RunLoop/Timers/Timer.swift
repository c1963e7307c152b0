import Synchronization

/// Calls a closure on a run loop's thread at a date, once or repeatedly.
///
/// A timer does nothing until it is added to a run loop, and then fires only while that loop runs in one of the modes it was
/// added to. It never fires early. It may fire late: by its ``tolerance``, by the timer slack of the thread (prctl(2),
/// usually 50 µs), and by the time for which the loop is busy or in another mode. A late loop fires the timer once, however
/// many firings it missed, and the next date keeps the original phase.
///
/// ```swift
/// let clock = Timer.scheduled(every: .seconds(1), forMode: .common, tolerance: .milliseconds(100)) { _ in
///     print("tick")
/// }
/// clock.invalidate()
/// ```
///
/// Dates are ``Deadline``s on the monotonic clock, so setting the system's date does not move a timer.
///
/// The loop retains its timers. ``invalidate()`` removes a timer from its loop permanently and releases its closure; a timer
/// that does not repeat is invalidated by firing. Every method may be called from any thread.
///
/// In async code, use ``RunLoop/ticks(every:tolerance:inModes:file:line:)``, or sleeps on
/// ``RunLoop/clock(inModes:file:line:)``.
///
/// Foundation on Linux differs: there a timer made with an interval fires at once, tolerance is ignored, and no timer is ever
/// freed.
public final class Timer: Sendable {
    /// A repeating timer's shortest interval, in nanoseconds; a shorter one is raised to it, as Foundation documents.
    static let leastInterval: Int64 = 100_000

    /// Nanoseconds between firings; zero for a timer that fires once.
    let period: Int64
    let state: Mutex<State>

    private init(period: Int64, _ state: consuming sending State) {
        self.period = period
        self.state = Mutex(state)
    }

    convenience init(
        date: Int64, due: Int64, period: Int64, tolerance: Duration, name: ItemName?,
        handler: consuming Handler
    ) {
        let tolerance = Self.clamp(tolerance, period: period)
        self.init(
            period: period,
            State(due: due, date: date, tolerance: tolerance, name: name, handler: handler))
    }

    /// Creates a timer that fires at `fireDate`, and then, if it repeats, every `interval` from there on.
    ///
    /// - Parameters:
    ///   - fireDate: When to fire first. A date that has passed means the next pass, and the phase begins now.
    ///   - interval: The time between firings of a repeating timer, at least 0.1 ms; ignored otherwise.
    ///   - repeats: Whether to fire more than once.
    ///   - tolerance: How late the timer may be to share a wake-up with others; at most half the interval.
    ///   - label: See ``label``.
    ///   - handler: Called with the timer, on the thread of the loop that it is added to.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    public convenience init(
        fireDate: Deadline, interval: Duration = .zero, repeats: Bool = false, tolerance: Duration = .zero,
        label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        handler: @escaping @Sendable (Timer) -> Void
    ) {
        let date = fireDate.uptimeNanoseconds
        self.init(
            date: date, due: Self.effective(date), period: repeats ? Self.period(interval) : 0,
            tolerance: tolerance, name: .make(label, file, line),
            handler: .sendable(handler))
    }

    /// Creates a timer that fires once, at `fireDate` of `loop`'s thread, to which it is added afterwards.
    convenience init(
        fireDate: Deadline, of loop: RunLoop, tolerance: Duration = .zero, _ file: StaticString = #fileID,
        _ line: UInt = #line, handler: @escaping @Sendable (Timer) -> Void
    ) {
        let date = fireDate.uptimeNanoseconds
        self.init(
            date: date, due: Self.effective(date, loop.now), period: 0, tolerance: tolerance,
            name: .make(nil, file, line), handler: .sendable(handler))
    }

    /// Creates a timer whose first date is `interval` from now.
    ///
    /// The parameters are those of ``init(fireDate:interval:repeats:tolerance:label:file:line:handler:)``.
    public convenience init(
        interval: Duration, repeats: Bool = false, tolerance: Duration = .zero, label: String? = nil,
        file: StaticString = #fileID, line: UInt = #line, handler: @escaping @Sendable (Timer) -> Void
    ) {
        let period = repeats ? Self.period(interval) : 0
        let due = Self.date(after: repeats ? period : interval.wholeNanoseconds)
        self.init(
            date: due, due: due, period: period, tolerance: tolerance, name: .make(label, file, line),
            handler: .sendable(handler))
    }

    /// Whether the timer can still fire.
    public var isValid: Bool { state.withLock { $0.isValid } }

    /// The time between firings. As in Cocoa, zero for a timer that fires once, whatever ``fireDate`` it was made with.
    public var interval: Duration { .nanoseconds(period) }

    /// When the timer fires next; during its callback, the date being served; for an invalid timer, its last date.
    ///
    /// Setting it moves the timer in all its modes and starts a new phase there; a date that has passed means the next pass.
    /// Setting it on an invalid timer does nothing.
    public var fireDate: Deadline {
        get { Deadline(uptimeNanoseconds: state.withLock { $0.date }) }
        set { move(to: newValue.uptimeNanoseconds) }
    }

    /// How late the timer may fire, so that timers whose windows overlap share one wake-up. The default is zero.
    ///
    /// A repeating timer that is not alone may fire late by a sixty-fourth of its interval, at most half a millisecond,
    /// even if its tolerance is less.
    ///
    /// Clamped to zero and, for a repeating timer, half its interval. Firing late does not move later dates.
    public var tolerance: Duration {
        get { .nanoseconds(state.withLock { $0.tolerance }) }
        set {
            let tolerance = Self.clamp(newValue, period: period)
            let loop = state.withLock { state in
                state.tolerance = tolerance
                return state.loop
            }
            loop?.update(self)
        }
    }

    /// What dumps, ``LoopDiagnostics`` and explanations call the timer; nil for none.
    public var label: String? {
        get { state.withLock { $0.name?.label } }
        set { state.withLock { $0.name = .relabel($0.name, newValue) } }
    }

    /// What the timer is, with its label.
    var title: String { state.withLock { $0.name }.naming("timer") }

    /// ``fireDate``, for ReactorFoundation, whose property of that name hides this one.
    package var deadline: Deadline {
        get { fireDate }
        set { fireDate = newValue }
    }

    /// ``tolerance``, likewise.
    package var leeway: Duration {
        get { tolerance }
        set { tolerance = newValue }
    }

    /// Removes the timer from its loop permanently, and releases its closure.
    ///
    /// Called on the loop's thread, no callback begins afterwards; called on another thread, one that has begun may still be
    /// running. Inside the timer's own callback, the closure is released when the callback returns.
    public func invalidate() { state.withLock { $0.invalidate() }.release() }

    /// Calls the closure now, on this thread.
    ///
    /// A repeating timer keeps its dates; any other is invalidated. Firing an invalid timer does nothing, nor does firing
    /// one whose closure is being called, on this thread or another: it is not re-entered.
    ///
    /// - Precondition: A timer made by ``scheduled(after:forMode:tolerance:label:file:line:handler:)`` or
    ///   ``scheduled(every:forMode:tolerance:label:file:line:handler:)`` is fired on the thread that made it.
    public func fire() {
        guard let handler = state.withLock({ $0.beginFiring() }) else { return }
        handler(self)
        guard period > 0 else { return finishForGood() }
        let loop = state.withLock { state in
            state.isFiring = false
            return state.loop
        }
        // A run of the loop meanwhile may have suspended the timer.
        loop?.update(self)
    }

    /// Ends the only firing of a timer that does not repeat.
    func finishForGood() {
        let handler = state.withLock { state in
            state.isFiring = false
            return state.invalidate()
        }
        handler.release()
    }

    private func move(to date: Int64) {
        let loop = state.withLock { state -> RunLoop? in
            guard state.isValid else { return nil }
            state.setDate(date, due: Self.effective(date, state.loop?.now ?? .now))
            state.isMoved = true
            return state.loop
        }
        loop?.update(self)
    }

    /// The date to serve: for a date that has passed, now.
    private static func effective(_ date: Int64, _ now: Deadline = .now) -> Int64 {
        max(date, now.uptimeNanoseconds)
    }

    static func date(after delay: Int64) -> Int64 {
        Deadline.now.uptimeNanoseconds.addingSaturated(max(delay, 0))
    }

    static func period(_ interval: Duration) -> Int64 { max(interval.wholeNanoseconds, leastInterval) }

    /// The smallest `date + k * period`, k at least one, that is later than `now`.
    static func nextDate(after date: Int64, every period: Int64, now: Int64) -> Int64 {
        let next = date.addingSaturated(period)
        guard next <= now else { return next }
        let missed = (now - date) / period
        let (offset, overflow) = (missed + 1).multipliedReportingOverflow(by: period)
        return overflow ? .max : date.addingSaturated(offset)
    }

    static func clamp(_ tolerance: Duration, period: Int64) -> Int64 {
        guard tolerance.attoseconds > 0 else { return 0 }
        return min(tolerance.wholeNanoseconds, period > 0 ? period / 2 : .max)
    }
}

// MARK: - On the calling thread

extension Timer {
    /// Creates a timer that fires once, `delay` from now, and adds it to the calling thread's loop.
    ///
    /// The closure is called and destroyed on this thread, so it may capture what is not `Sendable`.
    ///
    /// ```swift
    /// Timer.scheduled(after: .seconds(5)) { _ in print("five seconds have passed") }
    /// ```
    /// - Parameters:
    ///   - delay: Time from now; zero or less means the next pass of the loop, never before this returns.
    ///   - mode: The mode to fire in.
    ///   - tolerance: How late the timer may be to share a wake-up.
    ///   - label: See ``label``.
    ///   - handler: Called with the timer on this thread.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    @discardableResult
    public static func scheduled(
        after delay: Duration, forMode mode: RunLoop.Mode = .default, tolerance: Duration = .zero,
        label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        handler: consuming @escaping (Timer) -> Void
    ) -> Timer {
        let timer = scheduled(delay: delay.wholeNanoseconds, period: 0, mode, tolerance, handler)
        if label != nil || LoopDiagnostics.isReporting { timer.setName(label, file, line) }
        return timer
    }

    /// Creates a timer that fires every `interval`, first one interval from now, and adds it to the calling
    /// thread's loop.
    ///
    /// The closure is called and destroyed on this thread, so it may capture what is not `Sendable`.
    ///
    /// ```swift
    /// let ticker = Timer.scheduled(every: .milliseconds(10), forMode: .common) { _ in print("tick") }
    /// ticker.invalidate()
    /// ```
    /// - Parameters:
    ///   - interval: The time between firings, at least 0.1 ms.
    ///   - mode: The mode to fire in.
    ///   - tolerance: How late the timer may be to share a wake-up; at most half the interval.
    ///   - label: See ``label``.
    ///   - handler: Called with the timer on this thread.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    @discardableResult
    public static func scheduled(
        every interval: Duration, forMode mode: RunLoop.Mode = .default, tolerance: Duration = .zero,
        label: String? = nil, file: StaticString = #fileID, line: UInt = #line,
        handler: consuming @escaping (Timer) -> Void
    ) -> Timer {
        let period = period(interval)
        let timer = scheduled(delay: period, period: period, mode, tolerance, handler)
        if label != nil || LoopDiagnostics.isReporting { timer.setName(label, file, line) }
        return timer
    }

    @inline(never)
    func setName(_ label: String?, _ file: StaticString, _ line: UInt) {
        if LoopDiagnostics.isReporting { Watchdog.supervise(self) }
        state.withLock { $0.name = .make(label, file, line) }
    }

    /// Creates a timer whose closure belongs to this thread, and adds it to a mode of this thread's loop, unless the thread is
    /// ending.
    static func scheduled(
        delay: Int64, period: Int64, _ mode: RunLoop.Mode?, _ tolerance: Duration,
        _ handler: consuming @escaping (Timer) -> Void
    ) -> Timer {
        let due = date(after: delay)
        let state = State(
            due: due, date: due, tolerance: clamp(tolerance, period: period), name: nil,
            handler: .confined(handler), isConfined: true)
        let timer = Timer(period: period, state)
        RunLoop.withCurrent { $0.adopt(timer, forMode: mode) }
        return timer
    }
}
