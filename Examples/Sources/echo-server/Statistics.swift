import ExampleSupport
import Reactor

/// The statistics of all connections, which the servers' threads share.
final class Statistics: Sendable {
    private struct Counts {
        var connections = 0
        var openConnections = 0
        var peakConnections = 0
        var abortedConnections = 0
        var messages = 0
        var bytes = 0
        var runningServers: Int
    }

    private let counts: Mutex<Counts>
    private let start = Deadline.now
    private let onFinish: @Sendable () -> Void

    /// - Parameters:
    ///   - serverCount: The number of servers, which all count as running.
    ///   - onFinish: Called when the last server has finished, on its thread.
    init(serverCount: Int, onFinish: @escaping @Sendable () -> Void) {
        counts = Mutex(Counts(runningServers: serverCount))
        self.onFinish = onFinish
    }

    func connectionOpened() {
        counts.withLock { counts in
            counts.connections += 1
            counts.openConnections += 1
            counts.peakConnections = max(counts.peakConnections, counts.openConnections)
        }
    }

    func connectionClosed(_ session: EchoSession) {
        let (messages, bytes) = (session.messageCount, session.byteCount)
        counts.withLock { counts in
            counts.openConnections -= 1
            counts.messages += messages
            counts.bytes += bytes
        }
    }

    /// Adds connections that the server closed because their clients had not disconnected.
    func connectionsAborted(_ number: Int) { counts.withLock { $0.abortedConnections += number } }

    func serverFinished() {
        let isLast = counts.withLock { counts in
            counts.runningServers -= 1
            return counts.runningServers == 0
        }
        if isLast { onFinish() }
    }

    // MARK: Output

    var json: String {
        let counts = counts.withLock { $0 }
        let milliseconds = (start.duration(to: .now) / .milliseconds(1)).rounded()
        let members: [(String, JSON)] = [
            ("connections", .integer(counts.connections)),
            ("peak_connections", .integer(counts.peakConnections)),
            ("aborted_connections", .integer(counts.abortedConnections)),
            ("messages", .integer(counts.messages)), ("bytes", .integer(counts.bytes)),
            ("seconds", .real(milliseconds / 1000)),
        ]
        return JSON.object(members).description
    }

    var summary: String {
        let counts = counts.withLock { $0 }
        return """
            \(counts.connections) connections, at most \(counts.peakConnections) at a time; \
            \(counts.bytes) bytes in \(counts.messages) messages; \(counts.abortedConnections) connections aborted
            """
    }
}
