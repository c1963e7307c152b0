import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Which calls open a connection, and what is delivered after a close in a callback.
@Suite(.runLoop) struct ConnectionOpeningTests {
    enum Reading: CaseIterable, Sendable {
        case chunk, buffer, count, end, first, delimiter, chunks, lines, messages

        /// Reads an empty line from `connection`.
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

    @Test(arguments: [true, false])
    func `an attempt to open a connection that fails or is cancelled closes it`(isCancelled: Bool)
        async throws
    {
        let full = try FullServer()
        let connection = Connection(to: isCancelled ? full.address : refusingAddress())
        let opening = Task.immediate { try await connection.open() }
        if isCancelled { opening.cancel() }
        let error = await thrownError { try await opening.value }
        #expect(isCancelled ? error is CancellationError : error?.errno == .connectionRefused)
        #expect(connection.state == (isCancelled ? .closed : .failed) && connection.descriptor == nil)
        let again = await thrownError { try await connection.write("late") }
        #expect(again?.errno == .badFileDescriptor)
    }

    @Test(arguments: [true, false])
    func `the label of a connection is in its description and in its errors`(isWritten: Bool) async throws {
        let connection = Connection(to: refusingAddress())
        #expect("\(connection)" == "connection to \(refusingAddress())")
        connection.label = "upstream"
        #expect("\(connection)" == "connection to \(refusingAddress()) 'upstream'")
        let error = await thrownError {
            if isWritten { try await connection.write("x") } else { try await connection.open() }
        }
        #expect((error as? IOError)?.label == "upstream" && connection.label == "upstream")
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

    @Test func `an event that became pending in a nested run is not delivered after a close`() throws {
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
