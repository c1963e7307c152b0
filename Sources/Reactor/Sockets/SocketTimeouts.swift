import Glibc
import Synchronization

/// Ends a connection on which nothing has moved for too long, or whose peer takes too long to read. On the
/// sockets' own thread, so that it does not matter which loop the streams are on, or in which mode that runs.
///
/// A byte that moves does not touch the timer, which computes its next date when it fires. For the write timeout it is
/// armed only when the peer begins to keep a byte waiting.
final class SocketTimeouts: Sendable {
    /// When a byte last came or went, in nanoseconds of the monotonic clock.
    let lastActivity = Atomic<Int64>(0)
    /// Since when the peer has kept a byte waiting; zero while it does not.
    let blockedSince = Atomic<Int64>(0)
    let timer = Mutex<Timer?>(nil)
}

extension SocketTimeouts {
    fileprivate static var now: Int64 { Deadline.now.uptimeNanoseconds }

    fileprivate func noteActivity() { lastActivity.store(Self.now, ordering: .relaxed) }

    /// Returns whether the peer only now begins to keep a byte waiting.
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

    /// Clears ``blockedSince`` if the peer has made room; `hasRoom` finds out. A write that is blocked meanwhile counts.
    fileprivate func noteRoom(if hasRoom: () -> Bool) {
        let before = blockedSince.load(ordering: .relaxed)
        guard before > 0, hasRoom() else { return }
        _ = blockedSince.compareExchange(expected: before, desired: 0, ordering: .relaxed)
    }

    /// Exchanges the timer for another one.
    fileprivate func replaceTimer(by timer: Timer?) {
        let old = self.timer.withLock { old in
            defer { old = timer }
            return old
        }
        old?.invalidate()
    }

    /// Has the timer fire as early as a timeout may be over. Follows each change of what ``nextCheck(_:)`` computes that
    /// makes it earlier.
    fileprivate func arm(_ options: SocketOptions) {
        timer.withLock { timer in
            let next = nextCheck(options)
            if let timer, next < timer.fireDate { timer.fireDate = next }
        }
    }

    /// Whether one of the options' times is over.
    fileprivate func isOver(_ options: SocketOptions) -> Bool {
        let (now, blockedSince) = (Self.now, self.blockedSince.load(ordering: .relaxed))
        let idleSince = lastActivity.load(ordering: .relaxed)
        if let idle = options.idleTimeout, now - idleSince >= idle.wholeNanoseconds { return true }
        guard let timeout = options.writeTimeout, blockedSince > 0 else { return false }
        return now - blockedSince >= timeout.wholeNanoseconds
    }

    /// When a timeout may be over at the earliest, as things are; the distant future if none can be.
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

extension SocketChannel {
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

    /// Begins to keep the time, anew if need be, from when the connection is there.
    func keepTime() {
        guard let (options, timeouts) = state.withLock({ $0.beginKeepingTime() }) else { return }
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

    func stopKeepingTime() { timeouts?.replaceTimer(by: nil) }

    private func check(_ timer: Timer) {
        let (options, timeouts) = state.withLock { ($0.details.options, $0.details.timeouts) }
        guard let timeouts else { return }
        // A peer that has made room keeps no byte waiting: it is the client that does not write.
        timeouts.noteRoom { (bufferSlot.buffer?.isEmpty ?? true) && holder.isReady(for: CInt(POLLOUT)) }
        if timeouts.isOver(options) {
            timer.invalidate()
            fail(.timedOut, on: nil)
        } else {
            timer.fireDate = .distantFuture
            timeouts.arm(options)
        }
    }
}

extension SocketChannel.State {
    /// The options, and where the time is kept; nil if there is no connection to keep it of, or nobody has ever asked.
    fileprivate mutating func beginKeepingTime() -> (SocketOptions, SocketTimeouts)? {
        guard case .own(let details) = box, case .ready = progress, !isClosed else {
            return nil
        }
        let options = details.options
        if let timeouts = details.timeouts { return (options, timeouts) }
        guard options.idleTimeout != nil || options.writeTimeout != nil else { return nil }
        let timeouts = SocketTimeouts()
        self.details.timeouts = timeouts
        return (options, timeouts)
    }
}
