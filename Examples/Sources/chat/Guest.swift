import Reactor
import SystemPackage

/// A connected client. Splits its input into lines, and sends it the lines of the others.
///
/// Nothing blocks: bytes that the connection has no room for wait in the guest. While any guest has such bytes, the room
/// reads from no guest (see ``Room``), so they are at most the replies to one read. A guest that accepts no bytes for the
/// connection's write timeout is disconnected; a slow one is not.
final class Guest: ConnectionDelegate {
    /// The rest of a longer line is discarded.
    private static let longestLine = 1000

    var name = ""
    /// Whether bytes wait until the connection has room again.
    var isBehind: Bool { !unsent.isEmpty }

    private let connection: Connection
    private unowned let room: Room
    private var framer = LineFramer(limit: longestLine, overflow: .truncate)
    private var unsent: [UInt8] = []
    /// Whether bytes are available that wait until the room is no longer congested.
    private var isReadDeferred = false
    private var isLeaving = false

    init(_ connection: Connection, in room: Room) { (self.connection, self.room) = (connection, room) }

    func start() { connection.open(delegate: self) }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted: room.welcome(self)
        case .hasBytesAvailable: read()
        case .hasSpaceAvailable where isBehind:
            flush()
            if !isBehind { room.resumeReading() }
        case .endEncountered: close()
        case .errorOccurred(let error):
            close(reason: (error as? IOError)?.errno == .timedOut ? "write timeout" : nil)
        default: break
        }
    }

    // MARK: Reading

    private func read() {
        // The connection delivers no further event for bytes until it is read.
        isReadDeferred = room.isCongested
        guard !isReadDeferred, !isLeaving else { return }
        let bytes = connection.receive(upTo: 4096)
        // Cannot throw: the framer truncates long lines, and invalid UTF-8 is repaired.
        _ = try? unsafe framer.push(bytes.span.bytes) { bytes, line in
            room.perform(Command(try line.text(bytes)), for: self)
            return isLeaving ? .enough : .more
        }
    }

    /// Reads the bytes that were deferred while the room was congested.
    func resumeReading() {
        if isReadDeferred { read() }
    }

    // MARK: Writing

    func send(_ line: String) {
        guard !isLeaving else { return }
        let wasBehind = isBehind
        unsent += "\(line)\n".utf8
        if !wasBehind { flush() }
    }

    /// Sends what the connection has room for. An event reports when it has room for the rest.
    private func flush() {
        let count = min(unsent.count, connection.writableCount)
        if count > 0, (try? connection.send(Array(unsent.prefix(count)))) != nil { unsent.removeFirst(count) }
        if isLeaving, !isBehind { close() }
    }

    // MARK: Closing

    /// Stops reading, and closes the connection after the lines have been sent.
    func leave() {
        isLeaving = true
        flush()
    }

    /// Closes the connection, and discards the lines that it had no room for.
    func close(reason: String? = nil) {
        connection.close()
        room.remove(self, reason: reason)
    }
}
