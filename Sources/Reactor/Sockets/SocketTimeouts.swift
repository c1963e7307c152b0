import Glibc
import Synchronization

/// Fails a connection that has waited for its peer for too long, or whose peer has accepted no byte for too long. The alarms
/// are on the streams thread, so they ring whatever the streams' loops do.
final class SocketTimeouts: Sendable {
    /// Restarts whenever a byte is received or sent, and when a task begins to wait for the next one.
    let idle: Alarm
    /// Runs while a byte waits for the peer, and restarts whenever the peer accepts one.
    let stall: Alarm
    /// Whether a task has waited for bytes since the last ones were received.
    fileprivate let isAwaited = Atomic(false)

    fileprivate init(of connection: SocketConnection, on loop: RunLoop) {
        idle = Alarm(on: loop) { [weak connection] in connection?.failIfIdle() }
        stall = Alarm(on: loop) { [weak connection] in connection?.failIfStalled() }
    }

    func noteReceived() {
        isAwaited.store(false, ordering: .sequentiallyConsistent)
        idle.restart()
    }

    fileprivate func end() {
        idle.end()
        stall.end()
    }
}

extension SocketConnection {
    /// As long as nginx's lingering_time.
    private static let shortestCloseTimeout = Duration.seconds(30)
    /// 1 KiB a second: slower than any network in use, and fast enough that a peer holds 64 KiB for a minute only.
    private static let lowestRate = 1024.0
    /// The kernel's buffer of a peer that was fast has megabytes.
    private static let longestCloseTimeout = Duration.seconds(300)

    /// How long sending the rest of a closed connection's bytes, and waiting for the peer, may take.
    func limits(of closing: borrowing Closing) -> WriteBuffer.Limits {
        var limits = closing.limits
        guard let loop = try? ResidentThread.streams.runLoop() else { return limits }
        limits.end = loop.now + (closing.closeTimeout ?? defaultCloseTimeout(closing.buffer?.count ?? 0))
        return limits
    }

    private func defaultCloseTimeout(_ bufferedCount: Int) -> Duration {
        let count = bufferedCount + shared.unacknowledgedByteCount
        let timeout = Self.shortestCloseTimeout + .seconds(Double(count) / Self.lowestRate)
        return min(timeout, Self.longestCloseTimeout)
    }

    func noteSent(_ count: Int, isBlocked: Bool) {
        guard let timeouts else { return }
        if count > 0 { timeouts.idle.restart() }
        if !isBlocked {
            timeouts.stall.stop()
        } else if count > 0 || timeouts.stall.isStopped {
            timeouts.stall.restart()
        }
    }

    /// Begins the idle timeout, unless the task has waited since bytes came.
    func noteWait() {
        guard let timeouts, !timeouts.isAwaited.load(ordering: .sequentiallyConsistent) else { return }
        // First: an alarm that rings now finds that it has been restarted.
        timeouts.idle.restart()
        timeouts.isAwaited.store(true, ordering: .sequentiallyConsistent)
    }

    var options: ConnectionOptions { state.withLock { $0.details?.options } ?? .pair }

    /// Changes the timeouts, also of an open connection, and begins them anew.
    func changeTimeouts(_ change: (inout ConnectionOptions) -> Void) {
        state.withLock { change(&$0.detailsToChange().options) }
        startTimeouts()
        if let timeouts, isBlocked { timeouts.stall.restart() }
    }

    /// Starts the timeouts, or restarts them after a change, once the connection is established.
    func startTimeouts() {
        guard timeouts != nil || state.withLock({ $0.optionsInUse?.hasTimeout == true }),
            let loop = try? ResidentThread.streams.runLoop()
        else { return }
        let isAwaited = isTaskWaiting ?? false
        state.withLock { state in
            // Locked, so that the later one of two changes sets the alarms. Once the connection is closed, nothing ends them.
            guard let options = state.optionsInUse else { return }
            timeoutsSlot.storeIfNil(SocketTimeouts(of: self, on: loop))
            state.engines.input?.reportsWaits.store(true, ordering: .relaxed)
            timeouts?.isAwaited.store(isAwaited, ordering: .sequentiallyConsistent)
            timeouts?.stall.setTimeout(options.writeTimeout)
            timeouts?.idle.restart()
            timeouts?.idle.setTimeout(options.idleTimeout)
        }
    }

    func stopTimeouts() { timeouts?.end() }

    /// Fails the connection if it is waiting for its peer.
    fileprivate func failIfIdle() {
        guard let timeouts, isBlocked || expectsBytes(timeouts), timeouts.idle.isStopped else { return }
        fail(.timedOut, on: nil)
    }

    /// Fails the connection unless the kernel has room: then no byte waits for the peer, and the client has not written.
    fileprivate func failIfStalled() { if isBlocked { fail(.timedOut, on: nil, during: .write) } }

    /// Whether bytes wait for the peer to accept some.
    private var isBlocked: Bool {
        !(bufferSlot.buffer?.isFlushed ?? true && shared.isReady(for: CInt(POLLOUT)))
    }

    /// Whether the connection waits for the peer: a task awaits bytes; or there is none, the client has received all that has
    /// come, and that was not the end.
    private func expectsBytes(_ timeouts: SocketTimeouts) -> Bool {
        // What has come waits for the client.
        if hasReceived || shared.isReady(for: CInt(POLLIN)) { return false }
        guard let isTaskWaiting else {
            guard let input = state.withLock({ $0.engines.input }) else { return true }
            return input.status != .atEnd && !input.hasPutBackBytes
        }
        let wasAwaited = timeouts.isAwaited.exchange(isTaskWaiting, ordering: .sequentiallyConsistent)
        if wasAwaited, isTaskWaiting { return true }
        // Looks again, in case the task begins to wait now.
        timeouts.idle.restart()
        return false
    }

    /// Whether a task waits for bytes; nil if tasks do not use the connection.
    private var isTaskWaiting: Bool? {
        let engines = state.withLock { $0.engines }
        guard let input = engines.input else { return nil }
        if let isWaiting = input.isTaskWaiting { return isWaiting }
        return input.hasRecipient || engines.output?.isTaskWaiting == nil ? nil : false
    }
}

extension SocketConnection.State {
    /// The options of a connection that is established; nil if none were set, and before and after.
    fileprivate var optionsInUse: ConnectionOptions? {
        guard let details, case .ready = progress, !isClosed else { return nil }
        return details.options
    }
}

extension ConnectionOptions {
    fileprivate var hasTimeout: Bool { idleTimeout != nil || writeTimeout != nil }
}
