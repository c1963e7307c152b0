import Reactor
import Synchronization

/// What has come of all connections. The one thing that the threads share.
final class Tally: Sendable {
    private struct Counts {
        var connections = 0
        var openConnections = 0
        var peakConnections = 0
        var cutConnections = 0
        var messages = 0
        var bytes = 0
        var servers: Int
    }

    private let counts: Mutex<Counts>
    private let beginning = Deadline.now
    private let onEnd: @Sendable () -> Void

    /// Makes an empty tally for so many servers; `onEnd` is called when the last of them has ended.
    init(servers: Int, onEnd: @escaping @Sendable () -> Void) {
        counts = Mutex(Counts(servers: servers))
        self.onEnd = onEnd
    }

    func noteConnection() {
        counts.withLock { counts in
            counts.connections += 1
            counts.openConnections += 1
            counts.peakConnections = max(counts.peakConnections, counts.openConnections)
        }
    }

    func noteEnd(of session: EchoSession) {
        let (messages, bytes) = (session.messageCount, session.byteCount)
        counts.withLock { counts in
            counts.openConnections -= 1
            counts.messages += messages
            counts.bytes += bytes
        }
    }

    /// Counts connections that the server has to close itself.
    func noteCut(_ number: Int) { counts.withLock { $0.cutConnections += number } }

    func noteServerEnd() {
        let isLast = counts.withLock { counts in
            counts.servers -= 1
            return counts.servers == 0
        }
        if isLast { onEnd() }
    }

    // MARK: In words

    var json: String {
        let counts = counts.withLock { $0 }
        let members: [(String, any CustomStringConvertible)] = [
            ("connections", counts.connections), ("peak_connections", counts.peakConnections),
            ("cut_connections", counts.cutConnections), ("messages", counts.messages),
            ("bytes", counts.bytes),
            ("seconds", (beginning.duration(to: .now) / .milliseconds(1)).rounded() / 1000),
        ]
        return "{\(members.map { "\"\($0)\":\($1)" }.joined(separator: ","))}"
    }

    var summary: String {
        let counts = counts.withLock { $0 }
        return """
            \(counts.connections) connections, at most \(counts.peakConnections) at a time; \
            \(counts.bytes) bytes in \(counts.messages) messages; \(counts.cutConnections) connections cut
            """
    }
}
