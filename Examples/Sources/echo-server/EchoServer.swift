import ExampleSupport
import Reactor
import SystemPackage

/// An echo server on the loop of the thread that created it.
///
/// All its state belongs to that thread, except the shared statistics. The loop retains the server until it has shut
/// down.
final class EchoServer {
    /// The address that the server listens on.
    private(set) var address: SocketAddress

    private var listener: Listener?
    private let statistics: Statistics
    private let drainTimeout: Duration
    private var sessions: Set<EchoSession> = []
    /// Closes the remaining connections. Scheduled while the server shuts down.
    private var drainTimer: Timer?

    init(
        at address: SocketAddress, sharesPort: Bool, drainTimeout: Duration,
        security: Connection.Security? = nil,
        _ statistics: Statistics
    ) throws {
        self.address = address
        self.statistics = statistics
        self.drainTimeout = drainTimeout
        let listener = try Listener(address, options: EchoSession.options(sharesPort), security: security) {
            [self] _, connection in
            serve(connection)
        } acceptErrors: { _, error in
            Self.report(error)
        }
        try RunLoop.current.add(listener, forMode: .common)
        try Interruption { [self] in shutDown() }
        self.listener = listener
        self.address = listener.localAddress
    }

    private static func report(_ error: some Error) {
        _ = try? FileDescriptor.standardError.writeAll(Array("\(error)\n".utf8))
    }

    private func serve(_ connection: Connection) {
        statistics.connectionOpened()
        let session = EchoSession(connection) { [self] session in
            statistics.connectionClosed(session)
            sessions.remove(session)
            finishIfDrained()
        }
        sessions.insert(session)
        session.start()
    }

    // MARK: Shutting down

    /// Accepts the connections in the backlog and no later ones, and waits for the clients to disconnect.
    private func shutDown() {
        listener?.drain()
        drainTimer = Timer.scheduled(after: drainTimeout, forMode: .common) { [self] _ in
            statistics.connectionsAborted(sessions.count)
            for session in sessions { session.close() }
        }
        finishIfDrained()
    }

    private func finishIfDrained() {
        guard sessions.isEmpty, let timer = drainTimer.take() else { return }
        timer.invalidate()
        statistics.serverFinished()
    }
}
