import Synchronization

/// Rings on a loop's thread once a timeout has passed since ``restart(at:)``. Any thread may use it.
///
/// Moving the date later is one store: the timer computes the date when it fires, and waits for the rest. So what restarts
/// with every transfer costs no lock, and no wake-up of the loop.
final class Alarm: Sendable {
    private struct State {
        /// Fires at the alarm's date or before; nil while there is none.
        var timer: Timer?
        var hasEnded = false
    }

    private let loop: RunLoop
    private let ring: @Sendable () -> Void
    /// In nanoseconds; `Int64.max` for none.
    private let timeout: Atomic<Int64>
    /// The time of the last restart; 0 while the alarm is stopped.
    private let start = Atomic<Int64>(0)
    private let state = Mutex(State())
    /// Whether there is a timer. With `start` this is the handshake that misses no restart: one thread stores `start` and
    /// then reads this, and the timer clears this and then reads `start`.
    private let isArmed = Atomic(false)

    /// - Parameters:
    ///   - loop: The loop that rings, in its default mode.
    ///   - timeout: See ``timeout``.
    ///   - ring: Called once for each restart that is followed by no other in time.
    init(on loop: RunLoop, after timeout: Duration? = nil, ring: @escaping @Sendable () -> Void) {
        (self.loop, self.ring) = (loop, ring)
        self.timeout = Atomic(Self.nanoseconds(timeout))
    }

    deinit { end() }

    /// Sets the time from a restart to the ringing, also for the last restart; nil rings never.
    func setTimeout(_ timeout: Duration?) {
        self.timeout.store(Self.nanoseconds(timeout), ordering: .sequentiallyConsistent)
        arm()
    }

    /// Begins the timeout anew.
    func restart(at time: Deadline? = nil) {
        let time = time ?? loop.now
        start.store(time.uptimeNanoseconds, ordering: .sequentiallyConsistent)
        if !isArmed.load(ordering: .sequentiallyConsistent), hasTimeout { arm() }
    }

    /// Does not ring before the next restart. The timer stays until it fires.
    func stop() { start.store(0, ordering: .relaxed) }

    var isStopped: Bool { start.load(ordering: .relaxed) == 0 }

    /// Never rings again. A call of `ring` that has begun on the loop's thread continues.
    func end() {
        let timer = state.withLock { state in
            state.hasEnded = true
            return state.timer.take()
        }
        timer?.invalidate()
    }

    /// The timer, unless there is nothing to wait for.
    var timer: Timer? { state.withLock { $0.timer } }

    private static func nanoseconds(_ timeout: Duration?) -> Int64 { timeout?.wholeNanoseconds ?? .max }

    private var hasTimeout: Bool { timeout.load(ordering: .relaxed) < .max }

    /// When to ring for a restart at `start`; nil for never.
    private func date(of start: Int64) -> Deadline? {
        let timeout = timeout.load(ordering: .sequentiallyConsistent)
        return start == 0 || timeout == .max
            ? nil : Deadline(uptimeNanoseconds: start.addingSaturated(timeout))
    }

    /// Sets the timer to fire no later than the alarm.
    private func arm() {
        let unneeded = state.withLock { state -> Timer? in
            isArmed.store(false, ordering: .sequentiallyConsistent)
            guard !state.hasEnded, let date = date(of: start.load(ordering: .sequentiallyConsistent)) else {
                return state.timer.take()
            }
            setTimer(date, &state)
            return nil
        }
        unneeded?.invalidate()
    }

    private func setTimer(_ date: Deadline, _ state: inout State) {
        if let timer = state.timer {
            if date < timer.fireDate { timer.fireDate = date }
        } else {
            let timer = Timer(fireDate: date, of: loop) { [weak self] _ in self?.timerFired() }
            loop.add(timer, forMode: .default)
            state.timer = timer
        }
        isArmed.store(true, ordering: .relaxed)
    }

    private func timerFired() {
        let isDue = state.withLock { state in
            state.timer = nil
            isArmed.store(false, ordering: .sequentiallyConsistent)
            while true {
                let start = start.load(ordering: .sequentiallyConsistent)
                guard !state.hasEnded, let date = date(of: start) else { return false }
                if date > .now {
                    setTimer(date, &state)
                    return false
                }
                // A restart meanwhile counts.
                if self.start.compareExchange(expected: start, desired: 0, ordering: .relaxed).exchanged {
                    return true
                }
            }
        }
        if isDue { ring() }
    }
}
