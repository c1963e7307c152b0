import Glibc
import Synchronization

/// Fails a connection that has been idle for too long, or whose peer has accepted no byte for too long. The alarms are on the
/// streams thread, so they ring whatever the streams' loops do.
final class SocketTimeouts: Sendable {
    /// Restarts whenever a byte is received or sent.
    let idle: Alarm
    /// Runs while a byte waits for the peer, and restarts whenever the peer accepts one.
    let stall: Alarm

    fileprivate init(of connection: SocketConnection, on loop: RunLoop) {
        idle = Alarm(on: loop) { [weak connection] in connection?.fail(.timedOut, on: nil) }
        stall = Alarm(on: loop) { [weak connection] in connection?.failIfStalled() }
    }

    fileprivate func end() {
        idle.end()
        stall.end()
    }
}

extension SocketConnection {
    func noteActivity() { timeouts?.idle.restart() }

    func noteSent(_ count: Int, isBlocked: Bool) {
        guard let timeouts else { return }
        if count > 0 { timeouts.idle.restart() }
        if !isBlocked {
            timeouts.stall.stop()
        } else if count > 0 || timeouts.stall.isStopped {
            timeouts.stall.restart()
        }
    }

    /// Starts the timeouts, or restarts them after a change, once the connection is established.
    func startTimeouts() {
        guard let options = state.withLock({ $0.optionsInUse }) else { return }
        guard timeouts != nil || options.idleTimeout != nil || options.writeTimeout != nil,
            let loop = try? ResidentThread.streams.runLoop()
        else { return }
        state.withLock { state in
            // Once the connection is closed, nothing ends them.
            if !state.isClosed { timeoutsSlot.storeIfNil(SocketTimeouts(of: self, on: loop)) }
        }
        timeouts?.stall.setTimeout(options.writeTimeout)
        timeouts?.idle.restart()
        timeouts?.idle.setTimeout(options.idleTimeout)
    }

    func stopTimeouts() { timeouts?.end() }

    /// Fails the connection unless the kernel has room: then no byte waits for the peer, and the client has not written.
    fileprivate func failIfStalled() {
        if bufferSlot.buffer?.isEmpty ?? true, shared.isReady(for: CInt(POLLOUT)) { return }
        fail(.timedOut, on: nil)
    }
}

extension SocketConnection.State {
    /// The options of a connection that is established; nil if all are the defaults.
    fileprivate var optionsInUse: SocketOptions? {
        guard case .custom(let details) = detailsBox, case .ready = progress, !isClosed else { return nil }
        return details.options
    }
}
