#if DEBUG

import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct SocketConnectionTests {
    @Test(arguments: [true, false])
    func `a half that is closed before it opens retains nothing`(isInput: Bool) throws {
        let connection = SocketConnection(connectingTo: .address(.ipv4Loopback(port: 1)))
        let half: SocketConnection.Half = isInput ? .input : .output
        weak var engine: StreamEngine?
        do {
            let opening = StreamEngine(isInput ? SocketInput(connection) : SocketOutput(connection))
            engine = opening
            for half in [SocketConnection.Half.input, .output] { connection.close(half) }
            connection.open(half, for: opening)
        }
        #expect(engine == nil)
    }

    @Test func `an attempt that was cancelled does not start`() throws {
        let server = try SocketServer()
        let connector = SocketConnector(to: .address(server.address), until: .distantFuture) { _ in
            Issue.record("the completion was called after cancel()")
        }
        connector.cancel()
        connector.start()
        try waitForStreamsThread()
        #expect(!server.hasPendingConnection)
    }
}

#endif
