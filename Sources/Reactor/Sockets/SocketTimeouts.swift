import Glibc
import Synchronization

/// Ends a connection on which nothing has moved for too long, or whose peer takes too long to read. On the
/// sockets' own thread, so that it does not matter which loop the streams are on, or in which mode that runs.
///
/// Nothing is armed while bytes move: the timer finds out, when it fires, when it should have.
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

    fileprivate func noteSent(_ count: Int, isBlocked: Bool) {
        if count > 0 { noteActivity() }
        if !isBlocked {
            blockedSince.store(0, ordering: .relaxed)
        } else if count > 0 || blockedSince.load(ordering: .relaxed) == 0 {
            blockedSince.store(Self.now, ordering: .relaxed)
        }
    }

    fileprivate var isBlocked: Bool { blockedSince.load(ordering: .relaxed) > 0 }

    fileprivate func noteRoom() { blockedSince.store(0, ordering: .relaxed) }

    /// Exchanges the timer for another one.
    fileprivate func replaceTimer(by timer: Timer?) {
        let old = self.timer.withLock { old in
            defer { old = timer }
            return old
        }
        old?.invalidate()
    }

    /// Whether one of the options' times is over.
    fileprivate func isOver(_ options: SocketOptions) -> Bool {
        let (now, blockedSince) = (Self.now, self.blockedSince.load(ordering: .relaxed))
        let idleSince = lastActivity.load(ordering: .relaxed)
        if let idle = options.idleTimeout, now - idleSince >= idle.wholeNanoseconds { return true }
        guard let timeout = options.writeTimeout, blockedSince > 0 else { return false }
        return now - blockedSince >= timeout.wholeNanoseconds
    }

    /// When a timeout may be over at the earliest; for a peer that keeps nobody waiting, a little after that it
    /// could be.
    fileprivate func nextCheck(_ options: SocketOptions) -> Deadline {
        var next = Int64.max
        if let idle = options.idleTimeout {
            next = lastActivity.load(ordering: .relaxed).addingSaturated(idle.wholeNanoseconds)
        }
        if let timeout = options.writeTimeout?.wholeNanoseconds {
            let blockedSince = blockedSince.load(ordering: .relaxed)
            let check =
                blockedSince > 0 ? blockedSince.addingSaturated(timeout) : Self.now + max(timeout / 4, 1)
            next = min(next, check)
        }
        return Deadline(uptimeNanoseconds: next)
    }
}

extension SocketChannel {
    func noteActivity() {
        if isTimed.load(ordering: .relaxed) { timeouts?.noteActivity() }
    }

    func noteSent(_ count: Int, isBlocked: Bool) {
        if isTimed.load(ordering: .relaxed) { timeouts?.noteSent(count, isBlocked: isBlocked) }
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
        let timer = Timer(fireDate: timeouts.nextCheck(options), interval: .seconds(3600), repeats: true) {
            [weak self] timer in
            if let self { check(timer) } else { timer.invalidate() }
        }
        timeouts.replaceTimer(by: timer)
        loop.add(timer, forMode: .default)
    }

    func stopKeepingTime() { timeouts?.replaceTimer(by: nil) }

    private func check(_ timer: Timer) {
        let (options, timeouts) = state.withLock { ($0.details.options, $0.details.timeouts) }
        guard let timeouts else { return }
        // A peer that has made room keeps no byte waiting: it is the client that does not write.
        if bufferSlot.buffer?.isEmpty ?? true, timeouts.isBlocked, holder.isReady(for: CInt(POLLOUT)) {
            timeouts.noteRoom()
        }
        if timeouts.isOver(options) {
            timer.invalidate()
            fail(.timedOut, on: nil)
        } else {
            timer.fireDate = timeouts.nextCheck(options)
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
