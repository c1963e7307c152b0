import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import Testing

/// Sends what it receives, and ends when its peer does.
private final class Echo: ConnectionDelegate {
    func connection(_ connection: Connection, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable, .hasSpaceAvailable:
            try? connection.send(connection.receive(upTo: connection.writableCount))
        case .endEncountered: connection.finish()
        default: break
        }
    }
}

@Suite(.runLoop) struct ConnectionTests {
    /// More than the kernel and a write buffer hold.
    private let bytes = pattern(3_000_000)

    private func exchange(with address: SocketAddress) async throws {
        let client = try await Connection.connect(to: address, security: .tls(.testClient()))
        #expect(client.tlsSession?.serverName == "localhost")
        let bytes = bytes
        async let written: Void = {
            try await client.write(bytes)
            try await client.finish()
        }()
        #expect(try await client.read(exactly: bytes.count) == bytes)
        try await written
        #expect(try await client.read() == nil)
        client.close()
    }

    @Test func `tasks of a client and of a server talk through TLS`() async throws {
        let thread = try RunLoopThread(name: "server")
        let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: 0))
        let server = Task {
            try await connections.run(security: .tls(.testServer())) { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
        }
        try await exchange(with: connections.localAddress)
        connections.close()
        try await server.value
        await thread.shutDown()
    }

    @Test func `what a delegate sends through TLS arrives whole, however slowly it is read`() async throws {
        let thread = try RunLoopThread(name: "server")
        let address = try thread.runLoop.performSynchronously {
            let listener = try Listener(.ipv4Loopback(port: 0), tls: .testServer()) { _, connection in
                connection.open(delegate: Echo())
            }
            try RunLoop.current.add(listener, forMode: .common)
            return listener.localAddress
        }
        try await exchange(with: address)
        await thread.shutDown()
    }

    @Test func `a client's security for a server traps with a message`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try await Listener.run(at: .ipv4Loopback(port: 0), security: .tls()) { _ in }
        }
        #expect(result.message.contains("needs a server's security"))
    }
}
