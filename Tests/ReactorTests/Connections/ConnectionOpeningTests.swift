import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What opens a connection, and what a delegate gets that ends it meanwhile.
@Suite(.runLoop) struct ConnectionOpeningTests {
    enum Reading: CaseIterable, Sendable {
        case chunk, buffer, count, end, first, delimiter, chunks, lines, messages

        /// Reads an empty line by a connection.
        nonisolated(nonsending) func read(_ connection: Connection) async throws {
            var buffer: [UInt8] = []
            switch self {
            case .chunk: _ = try await connection.read()
            case .buffer: _ = try await connection.read(into: &buffer)
            case .count: _ = try await connection.read(exactly: 1)
            case .end: _ = try await connection.readToEnd(limit: 1)
            case .first: _ = try await connection.waitForBytes()
            case .delimiter: _ = try await connection.read(until: [10])
            case .chunks: for try await _ in connection.chunks() { break }
            case .lines: for try await _ in connection.lines() { break }
            case .messages: for try await _ in connection.messages(.delimiter()) { break }
            }
        }
    }

    @Test(arguments: Reading.allCases)
    func `a task that reads a connection opens both directions`(reading: Reading) async throws {
        let (peer, other) = try SocketPeer.pair()
        let connection = Connection(descriptor: other)
        #expect(connection.writableCount == 0)
        peer.send("\n")
        peer.shutDown()
        try await reading.read(connection)
        #expect(connection.writableCount > 0)
        try connection.send("answer")
        connection.close()
        #expect(peer.receiveToEnd() == Array("answer".utf8))
    }

    /// Closes the connection in a nested run that has met its next event.
    private final class Closer: ConnectionDelegate {
        private(set) var eventCount = 0
        private let closes: Bool

        init(closes: Bool) { self.closes = closes }

        func connection(_ connection: Connection, handle event: Connection.Event) {
            eventCount += 1
            guard eventCount == 1 else { return }
            for _ in 0..<10 { RunLoop.current.poll() }
            if closes { connection.close() }
        }
    }

    @Test func `an event that a nested run has met is not delivered after the connection was closed`() throws
    {
        for closes in [false, true] {
            let (peer, other) = try SocketPeer.pair()
            let (connection, delegate) = (Connection(descriptor: other), Closer(closes: closes))
            connection.open(delegate: delegate)
            for _ in 0..<10 { RunLoop.current.poll() }
            // Otherwise the nested run has met the event for space.
            #expect(delegate.eventCount == (closes ? 1 : 2))
            connection.close()
            withExtendedLifetime(peer) {}
        }
    }
}
