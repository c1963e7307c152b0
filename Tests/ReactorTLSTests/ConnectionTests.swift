import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

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

    @Test func `a message that TLS makes too long for the write buffer is refused, and one that fits is not`()
        async throws
    {
        let thread = try RunLoopThread(name: "server")
        let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: 0))
        let server = Task {
            try await connections.run(security: .tls(.testServer())) { connection in
                for try await _ in connection.chunks() {}
            }
        }
        let client = try await Connection.connect(to: connections.localAddress, security: .tls(.testClient()))
        let room = client.writableCount
        let error = await thrownError { try client.send([UInt8](repeating: 1, count: room + 1)) }
        #expect((error as? IOError)?.errno == .messageTooLong)
        try client.send([UInt8](repeating: 1, count: room))
        client.close()
        connections.drain()
        try await server.value
        await thread.shutDown()
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

    @Test func `a handshake that fails reaches the failures, and not the body`() async throws {
        let thread = try RunLoopThread(name: "server")
        let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: 0))
        let failures = Shared<[TLSError.Reason?]>([])
        let server = Task {
            let security = try Connection.Security.tls(.testServer())
            try await connections.run(
                security: security,
                connectionErrors: { _, error in failures.update { $0.append((error as? TLSError)?.reason) } }
            ) { _ in Issue.record("the handshake has succeeded") }
        }
        let client = try SocketPeer(connectedTo: connections.localAddress)
        client.send("GET / HTTP/1.1\r\n\r\n")
        _ = client.receiveToEnd()
        connections.close()
        try await server.value
        #expect(failures.value == [.notTLS])
        await thread.shutDown()
    }

    @Test func `what a delegate sends through TLS arrives whole, however slowly it is read`() async throws {
        let thread = try RunLoopThread(name: "server")
        let address = try thread.runLoop.performSynchronously {
            let listener = try Listener(
                .ipv4Loopback(port: 0), security: .tls(.testServer())
            ) { _, connection in
                connection.open(delegate: Echo())
            }
            try RunLoop.current.add(listener, forMode: .common)
            return listener.localAddress
        }
        try await exchange(with: address)
        await thread.shutDown()
    }

    // MARK: On an open connection

    /// A client and a server that are open.
    private func pair(_ options: Connection.Options = .init()) async throws -> (Connection, Connection) {
        let (first, second) = try socketPair()
        let ends = [first, second].map {
            Connection(descriptor: FileDescriptor(rawValue: $0), options: options)
        }
        for end in ends { try await end.open() }
        return (ends[0], ends[1])
    }

    @Test func `a task waits for the handshake that it starts between two messages`() async throws {
        let (client, server) = try await pair()
        async let served: Void = {
            #expect(try await server.read(until: Array("\n".utf8)) == Array("STARTTLS".utf8))
            try await server.write("go\n")
            try await server.startTLS(.testServer())
            #expect(server.tlsSession != nil)
            try await server.write(server.read(exactly: 6) ?? [])
        }()
        try await client.write("STARTTLS\n")
        #expect(try await client.read(until: Array("\n".utf8)) == Array("go".utf8))
        try await client.startTLS(.testClient())
        #expect(client.tlsSession?.serverName == "localhost")
        try await client.write("secret")
        #expect(try await client.read(exactly: 6) == Array("secret".utf8))
        try await served
    }

    @Test func `a queue sends what it has got during a handshake after it`() async throws {
        let (client, server) = try await pair()
        let queue = SendQueue(to: client)
        func beginTLS() throws { try client.beginTLS(.testClient()) }
        try beginTLS()
        try queue.send("secret")
        try await server.startTLS(.testServer())
        #expect(try await server.read(exactly: 6) == Array("secret".utf8))
        try await queue.flush()
    }

    @Test func `nothing can be sent without waiting during a handshake`() async throws {
        let (client, server) = try await pair()
        func beginTLS() throws { try client.beginTLS(.testClient()) }
        #expect(client.writableCount > 0)
        try beginTLS()
        #expect(client.writableCount == 0)
        #expect(throws: IOError.self) { try client.send("early") }
        let written = Task { try await client.write("secret") }
        try await server.startTLS(.testServer())
        #expect(try await server.read(exactly: 6) == Array("secret".utf8))
        try await written.value
        #expect(client.writableCount > 0)
    }

    @Test func `TLS does not begin after the end of the output, nor on a connection that has failed`()
        async throws
    {
        let (ended, peer) = try await pair()
        try await ended.finish()
        let (failed, other) = try await pair(.init(idleTimeout: .milliseconds(1)))
        #expect(await thrownError { _ = try await failed.read() } != nil)
        for (connection, part) in [(ended, "whose connection has ended"), (failed, "that has failed")] {
            let error = await thrownError { try await connection.startTLS(.testClient()) } as? TLSError
            guard case .cannotBegin(let obstacle)? = error?.reason else {
                Issue.record("\(String(describing: error))")
                continue
            }
            #expect(obstacle.contains(part))
        }
        // Nothing of a handshake was sent.
        #expect(try await peer.read() == nil)
        other.close()
    }

    @Test func `TLS does not begin within a message`() async throws {
        let (client, server) = try await pair()
        let queue = SendQueue(to: client, limit: 10_000_000)
        try queue.send([UInt8](repeating: 7, count: 5_000_000))
        func beginTLS() throws { try client.beginTLS(.testClient()) }
        let error = #expect(throws: TLSError.self) { try beginTLS() }
        #expect("\(error.map { "\($0)" } ?? "")".contains("cannot begin while a message is being written"))
        #expect(try await server.read(exactly: 5_000_000)?.allSatisfy { $0 == 7 } == true)
    }

    @Test func `starting TLS opens a connection that is not open`() async throws {
        let (first, second) = try socketPair()
        let (client, server) = (
            Connection(descriptor: FileDescriptor(rawValue: first)),
            Connection(descriptor: FileDescriptor(rawValue: second))
        )
        async let served: Void = server.startTLS(.testServer())
        try await client.startTLS(.testClient())
        #expect(client.state == .open && client.tlsSession != nil)
        try await served
    }

    @Test func `a handshake that fails throws its error to both sides`() async throws {
        let (client, server) = try await pair()
        async let served = thrownError { try await server.startTLS(.testServer()) }
        let error =
            await thrownError { try await client.startTLS(.testClient("elsewhere.example")) } as? TLSError
        #expect(error?.reason == .wrongName("elsewhere.example"))
        #expect(client.state == .failed && client.error as? TLSError == error)
        #expect(await served is TLSError)
    }

    @Test func `bytes from before the handshake are thrown as an error`() async throws {
        let (client, server) = try await pair()
        try await server.write("220 ready\n250 injected\n")
        #expect(try await client.read(until: Array("\n".utf8)) != nil)
        let error = await thrownError { try await client.startTLS(.testClient()) }
        #expect((error as? TLSError)?.reason == .unprotectedBytes)
    }

    @Test func `a server that has read the client's first bytes of the handshake uses them`() async throws {
        let (client, server) = try await pair()
        let line = "PROXY TCP4 192.0.2.1 192.0.2.2 4711 443\n"
        async let secured: Void = {
            try await client.write(line)
            try await client.startTLS(.testClient())
            try await client.write("secret")
        }()
        while unreadCount(of: server) <= line.utf8.count { await Task.yield() }
        #expect(try await server.read(until: Array("\n".utf8)) != nil)
        try #require(unreadCount(of: server) == 0)
        try await server.startTLS(.testServer())
        #expect(try await server.read(exactly: 6) == Array("secret".utf8))
        try await secured
    }

    @Test func `a command behind the one that begins TLS does not pass for a protected one`() async throws {
        let (client, server) = try await pair()
        try await client.write("STARTTLS\nDELETE everything\n")
        #expect(try await server.read(until: Array("\n".utf8)) == Array("STARTTLS".utf8))
        let error = await thrownError { try await server.startTLS(.testServer()) }
        #expect((error as? TLSError)?.reason == .notTLS)
    }

    @Test func `a task gives up waiting for a handshake, which continues until the connect timeout`()
        async throws
    {
        let (client, server) = try await pair()
        let late = await thrownError { try await client.startTLS(.testClient(), timeout: .milliseconds(1)) }
        #expect((late as? IOError)?.reason == .waitTimedOut && client.state == .open)
        let again = await thrownError { try await client.startTLS(.testClient()) }
        #expect("\(again.map { "\($0)" } ?? "")".contains("cannot begin on a stream that has it"))
        try await server.startTLS(.testServer())
        try await client.write("late")
        #expect(try await server.read(exactly: 4) == Array("late".utf8))

        let (hasty, silent) = try await pair(.init(connectTimeout: .milliseconds(1)))
        let failed = await thrownError { try await hasty.startTLS(.testClient()) }
        #expect((failed as? IOError)?.reason == .system(.timedOut) && hasty.state == .failed)
        withExtendedLifetime(silent) {}
    }

    @Test func `a task that is cancelled or whose connection is closed stops waiting for the handshake`()
        async throws
    {
        for closes in [false, true] {
            let (client, server) = try await pair()
            let task = Task { try await client.startTLS(.testClient()) }
            // The first byte of the handshake.
            #expect(try await server.read(exactly: 1) == [22])
            if closes { client.close() } else { task.cancel() }
            let error = await thrownError { try await task.value }
            if closes {
                #expect((error as? IOError)?.errno == .badFileDescriptor)
            } else {
                #expect(error is CancellationError)
            }
        }
    }

    private func unreadCount(of connection: Connection) -> CInt {
        var count: CInt = 0
        _ = connection.descriptor.map { ioctl($0.rawValue, UInt(FIONREAD), &count) }
        return count
    }

    @Test func `writes that are called during the handshake follow it`() async throws {
        let (client, server) = try await pair()
        let secured = Task { try await client.startTLS(.testClient()) }
        // The handshake's first message is on its way.
        while unreadCount(of: server) == 0 { await Task.yield() }
        let written = Task { for number in 0..<10 { try await client.write("\(number)") } }
        try await server.startTLS(.testServer())
        try await secured.value
        try await written.value
        try await client.finish()
        var received: [UInt8] = []
        for try await chunk in server.chunks() { received += chunk }
        #expect(received == Array("0123456789".utf8))
    }

    @Test func `a client's security for a server traps with a message`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try await Listener.run(at: .ipv4Loopback(port: 0), security: .tls()) { _ in }
        }
        #expect(result.message.contains("needs a server's security"))
    }
}

/// What `body` throws; nil if it does not.
nonisolated(nonsending) private func thrownError(
    by body: nonisolated(nonsending) () async throws -> Void
) async -> (any Error)? {
    do { try await body() } catch { return error }
    return nil
}
