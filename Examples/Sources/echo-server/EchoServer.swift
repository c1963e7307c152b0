import ExampleSupport
import Reactor
import SystemPackage

/// Accepts connections on the loop of the thread that it is made on, and serves them there.
///
/// It knows no other thread, so nothing in it is locked but the tally. The loop keeps it alive for as long as
/// there is something to do.
final class EchoServer {
    /// Where it listens.
    private(set) var address: SocketAddress

    private var listener: Listener?
    private let tally: Tally
    private let patience: Duration
    private var sessions: Set<EchoSession> = []
    private var isEnding = false
    /// Ends the drain when it takes too long.
    private var limit: Timer?

    init(at address: SocketAddress, isShared: Bool, _ tally: Tally, patience: Duration) throws {
        self.address = address
        self.tally = tally
        self.patience = patience
        let listener = try Listener(address, options: .init(reusesPort: isShared)) { [self] _, connection in
            serve(connection)
        } faults: { _, error in
            _ = try? FileDescriptor.standardError.writeAll(Array("\(error)\n".utf8))
        }
        try RunLoop.current.add(listener, forMode: .common)
        try Interruption { [self] in end() }
        self.listener = listener
        self.address = listener.localAddress
    }

    private func serve(_ connection: Listener.Connection) {
        tally.noteConnection()
        let session = EchoSession(connection) { [self] session in
            tally.noteEnd(of: session)
            sessions.remove(session)
            endIfDone()
        }
        sessions.insert(session)
        session.begin()
    }

    // MARK: The end

    /// Accepts those who have knocked already, then nobody, and gives all of them time to leave.
    private func end() {
        isEnding = true
        listener?.drain()
        limit = Timer.scheduled(after: patience, forMode: .common) { [self] _ in
            tally.noteCut(sessions.count)
            for session in sessions { session.end() }
        }
        endIfDone()
    }

    private func endIfDone() {
        guard isEnding, sessions.isEmpty, let limit else { return }
        limit.invalidate()
        self.limit = nil
        tally.noteServerEnd()
    }
}
