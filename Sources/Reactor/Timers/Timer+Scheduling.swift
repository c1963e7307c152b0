extension Timer {
    /// Makes a timer that fires once, `delay` from now, and adds it to the calling thread's loop.
    ///
    /// The closure belongs to this thread: it may capture what it likes, is called here and is destroyed
    /// here.
    ///
    /// ```swift
    /// Timer.scheduled(after: .seconds(5)) { _ in print("five seconds have passed") }
    /// ```
    /// - Parameters:
    ///   - delay: Time from now; zero or less means the next pass of the loop, never at once.
    ///   - mode: The mode to fire in.
    ///   - tolerance: How late the timer may be to share a wake-up.
    ///   - handler: Called with the timer on this thread.
    @discardableResult
    public static func scheduled(
        after delay: Duration, forMode mode: RunLoop.Mode = .default, tolerance: Duration = .zero,
        handler: consuming @escaping (Timer) -> Void
    ) -> Timer {
        scheduled(delay: delay.wholeNanoseconds, period: 0, mode, tolerance, .home(handler))
    }

    /// Makes a timer that fires every `interval`, first one interval from now, and adds it to the calling
    /// thread's loop.
    ///
    /// The closure belongs to this thread: it may capture what it likes, is called here and is destroyed
    /// here.
    ///
    /// ```swift
    /// let ticker = Timer.scheduled(every: .milliseconds(10), forMode: .common) { _ in print("tick") }
    /// ticker.invalidate()
    /// ```
    /// - Parameters:
    ///   - interval: The time between firings, at least 0.1 ms.
    ///   - mode: The mode to fire in.
    ///   - tolerance: How late the timer may be to share a wake-up; at most half the interval.
    ///   - handler: Called with the timer on this thread.
    @discardableResult
    public static func scheduled(
        every interval: Duration, forMode mode: RunLoop.Mode = .default, tolerance: Duration = .zero,
        handler: consuming @escaping (Timer) -> Void
    ) -> Timer {
        let period = period(interval)
        return scheduled(delay: period, period: period, mode, tolerance, .home(handler))
    }

    /// Makes a timer whose closure belongs to this thread, and which is in a mode of its loop from the start, unless
    /// that is at its end.
    static func scheduled(
        delay: Int64, period: Int64, _ mode: RunLoop.Mode?, _ tolerance: Duration,
        _ handler: consuming Handler
    ) -> Timer {
        let due = date(after: delay)
        let loop = HeldLoop.current ?? HeldLoop(RunLoop.current)
        guard let mode, !loop.isAtItsEnd else {
            return Timer(
                date: due, due: due, period: period, tolerance: tolerance, handler: handler, home: loop.loop)
        }
        let group = loop.state(of: mode)
        let place = Place(group: mode, slot: group.timers.nextSlot)
        let tolerance = clamp(tolerance, period: period)
        let state = State(due: due, tolerance: tolerance, handler: handler, place: place, in: loop)
        let window = state.window(of: period)
        let timer = Timer(period: period, state)
        group.timers.insert(timer, date: due, tolerance: window, sequence: loop.nextSequence())
        return timer
    }
}
