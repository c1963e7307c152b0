import Glibc
import Synchronization

/// Fails a connection that has been idle for too long, or whose peer has accepted no byte for too long. Its
/// timer is on the streams thread, so it fires whatever the streams' loops do.
///
/// Moving a byte does not touch the timer, which computes its next date when it fires. For the write timeout
/// the timer is armed only when a write starts to wait for the peer.
final class SocketTimeouts: Sendable {
    /// When a byte was last received or sent, in nanoseconds of the monotonic clock.
    let lastActivity = Atomic<Int64>(0)
    /// Since when a byte has waited for the peer; 0 while none does.
    let blockedSince = Atomic<Int64>(0)
    let timing = Mutex(Timing())

    struct Timing {
        var timer: Timer?
        /// Whether the connection is closed: another thread that is starting the timeouts gets no timer.
        var hasEnded = false
    }
}

extension SocketTimeouts {
    fileprivate static var now: Int64 { Deadline.now.uptimeNanoseconds }

    fileprivate func noteActivity() { lastActivity.store(Self.now, ordering: .relaxed) }

    /// Returns whether a byte has started to wait for the peer.
    fileprivate func noteSent(_ count: Int, isBlocked: Bool) -> Bool {
        if count > 0 { noteActivity() }
        guard isBlocked else {
            blockedSince.store(0, ordering: .relaxed)
            return false
        }
        let before = blockedSince.load(ordering: .relaxed)
        if count > 0 || before == 0 { blockedSince.store(Self.now, ordering: .relaxed) }
        return before == 0
    }

    /// Clears ``blockedSince`` if `hasRoom` finds room, unless another write was blocked meanwhile.
    fileprivate func noteRoom(if hasRoom: () -> Bool) {
        let before = blockedSince.load(ordering: .relaxed)
        guard before > 0, hasRoom() else { return }
        _ = blockedSince.compareExchange(expected: before, desired: 0, ordering: .relaxed)
    }

    /// Invalidates the timer and replaces it. Once the connection is closed, `timer` is invalid too.
    fileprivate func replaceTimer(by timer: Timer?) {
        let unused = timing.withLock { timing in
            if timing.hasEnded { return timer }
            defer { timing.timer = timer }
            return timing.timer
        }
        unused?.invalidate()
    }

    fileprivate func end() {
        let timer = timing.withLock { timing in
            timing.hasEnded = true
            return timing.timer.take()
        }
        timer?.invalidate()
    }

    /// Moves the timer to ``nextCheck(_:)`` if that is earlier.
    fileprivate func arm(_ options: SocketOptions) {
        timing.withLock { timing in
            let next = nextCheck(options)
            if let timer = timing.timer, next < timer.fireDate { timer.fireDate = next }
        }
    }

    /// Whether a timeout has expired.
    fileprivate func hasExpired(_ options: SocketOptions) -> Bool {
        let (now, blockedSince) = (Self.now, self.blockedSince.load(ordering: .relaxed))
        let idleSince = lastActivity.load(ordering: .relaxed)
        if let idle = options.idleTimeout, now - idleSince >= idle.wholeNanoseconds { return true }
        guard let timeout = options.writeTimeout, blockedSince > 0 else { return false }
        return now - blockedSince >= timeout.wholeNanoseconds
    }

    /// The earliest time at which a timeout may expire; the distant future if none can.
    fileprivate func nextCheck(_ options: SocketOptions) -> Deadline {
        var next = Int64.max
        if let idle = options.idleTimeout {
            next = lastActivity.load(ordering: .relaxed).addingSaturated(idle.wholeNanoseconds)
        }
        let blockedSince = blockedSince.load(ordering: .relaxed)
        if let timeout = options.writeTimeout, blockedSince > 0 {
            next = min(next, blockedSince.addingSaturated(timeout.wholeNanoseconds))
        }
        return Deadline(uptimeNanoseconds: next)
    }
}

extension SocketConnection {
    func noteActivity() {
        if isTimed.load(ordering: .relaxed) { timeouts?.noteActivity() }
    }

    func noteSent(_ count: Int, isBlocked: Bool) {
        guard isTimed.load(ordering: .relaxed), let timeouts else { return }
        if timeouts.noteSent(count, isBlocked: isBlocked) {
            timeouts.arm(state.withLock { $0.details.options })
        }
    }

    var timeouts: SocketTimeouts? { state.withLock { $0.details.timeouts } }

    /// Starts the timeouts, or restarts them after a change, once the connection is established.
    func startTimeouts() {
        guard let (options, timeouts) = state.withLock({ $0.prepareTimeouts() }) else { return }
        let isNeeded = options.idleTimeout != nil || options.writeTimeout != nil
        isTimed.store(isNeeded, ordering: .relaxed)
        guard isNeeded else { return timeouts.replaceTimer(by: nil) }
        timeouts.noteActivity()
        guard let loop = try? ResidentThread.streams.runLoop() else { return }
        let timer = Timer(fireDate: .distantFuture, interval: .seconds(3600), repeats: true) {
            [weak self] timer in
            if let self { check(timer) } else { timer.invalidate() }
        }
        timeouts.replaceTimer(by: timer)
        timeouts.arm(options)
        loop.add(timer, forMode: .default)
    }

    func stopTimeouts() { timeouts?.end() }

    private func check(_ timer: Timer) {
        let (options, timeouts) = state.withLock { ($0.details.options, $0.details.timeouts) }
        guard let timeouts else { return }
        // With room in the kernel no byte waits for the peer: then the client has not written.
        timeouts.noteRoom { (bufferSlot.buffer?.isEmpty ?? true) && shared.isReady(for: CInt(POLLOUT)) }
        if timeouts.hasExpired(options) {
            timer.invalidate()
            fail(.timedOut, on: nil)
        } else {
            timer.fireDate = .distantFuture
            timeouts.arm(options)
        }
    }
}

extension SocketConnection.State {
    /// The options and the timeouts; nil without a connection, or if there has never been a timeout.
    fileprivate mutating func prepareTimeouts() -> (SocketOptions, SocketTimeouts)? {
        guard case .custom(let details) = detailsBox, case .ready = progress, !isClosed else { return nil }
        let options = details.options
        if let timeouts = details.timeouts { return (options, timeouts) }
        guard options.idleTimeout != nil || options.writeTimeout != nil else { return nil }
        let timeouts = SocketTimeouts()
        self.details.timeouts = timeouts
        return (options, timeouts)
    }
}
