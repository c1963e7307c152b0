import Synchronization

/// Ends a connection on which nothing has moved for too long, or whose peer takes too long to read. On the
/// sockets' own thread, so that it does not matter which loop the streams are on, or in which mode that runs.
///
/// Nothing is armed while bytes move: the timer finds out, when it fires, when it should have.
struct SocketTimeouts: ~Copyable, Sendable {
    /// Whether anybody has set a timeout: else no clock is read.
    let isTimed = Atomic(false)
    /// When a byte last came or went, in nanoseconds of the monotonic clock.
    let lastActivity = Atomic<Int64>(0)
    /// Since when the peer has kept a byte waiting; zero while it does not.
    let blockedSince = Atomic<Int64>(0)
    let timer = Mutex<Timer?>(nil)
}

extension SocketChannel {
    private var now: Int64 { Deadline.now.uptimeNanoseconds }

    func noteActivity() {
        if timeouts.isTimed.load(ordering: .relaxed) { timeouts.lastActivity.store(now, ordering: .relaxed) }
    }

    func noteSent(_ count: Int, isBlocked: Bool) {
        guard timeouts.isTimed.load(ordering: .relaxed) else { return }
        if count > 0 { timeouts.lastActivity.store(now, ordering: .relaxed) }
        if !isBlocked {
            timeouts.blockedSince.store(0, ordering: .relaxed)
        } else if count > 0 || timeouts.blockedSince.load(ordering: .relaxed) == 0 {
            timeouts.blockedSince.store(now, ordering: .relaxed)
        }
    }

    /// Begins to keep the time, anew if need be, from when the connection is there.
    func keepTime() {
        let (options, isOpen) = state.withLock { state in
            let isOver = state.isInputClosed && state.isOutputClosed
            return if case .ready = state.progress { (state.options, !isOver) } else {
                (state.options, false)
            }
        }
        let isTimed = options.idleTimeout != nil || options.writeTimeout != nil
        guard isOpen, isTimed || timeouts.isTimed.load(ordering: .relaxed) else { return }
        timeouts.isTimed.store(isTimed, ordering: .relaxed)
        timeouts.lastActivity.store(now, ordering: .relaxed)
        if !isTimed { return stopKeepingTime() }
        guard let loop = try? ResidentThread.streams.runLoop() else { return }
        let timer = Timer(fireDate: nextCheck(options), interval: .seconds(3600), repeats: true) {
            [weak self] timer in
            if let self { check(timer) } else { timer.invalidate() }
        }
        let old = timeouts.timer.withLock { old in
            defer { old = timer }
            return old
        }
        old?.invalidate()
        loop.add(timer, forMode: .default)
    }

    func stopKeepingTime() {
        let timer = timeouts.timer.withLock { $0.take() }
        timer?.invalidate()
    }

    private func check(_ timer: Timer) {
        let (options, now) = (state.withLock { $0.options }, self.now)
        let idleSince = timeouts.lastActivity.load(ordering: .relaxed)
        let blockedSince = timeouts.blockedSince.load(ordering: .relaxed)
        let isIdle = options.idleTimeout.map { now - idleSince >= $0.wholeNanoseconds } ?? false
        let isStuck = options.writeTimeout.map {
            blockedSince > 0 && now - blockedSince >= $0.wholeNanoseconds
        }
        guard isIdle || isStuck ?? false else {
            timer.fireDate = nextCheck(options)
            return
        }
        timer.invalidate()
        fail(.timedOut, on: nil)
    }

    /// When a timeout may be over at the earliest; for a peer that keeps nobody waiting, a little after that it
    /// could be.
    private func nextCheck(_ options: SocketOptions) -> Deadline {
        var next = Int64.max
        if let idle = options.idleTimeout {
            next = timeouts.lastActivity.load(ordering: .relaxed).addingSaturated(idle.wholeNanoseconds)
        }
        if let patience = options.writeTimeout?.wholeNanoseconds {
            let blockedSince = timeouts.blockedSince.load(ordering: .relaxed)
            let check = blockedSince > 0 ? blockedSince.addingSaturated(patience) : now + max(patience / 4, 1)
            next = min(next, check)
        }
        return Deadline(uptimeNanoseconds: next)
    }
}
