import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Peers that are cut off, silent, many or hostile.
@Suite(.runLoop) struct RobustnessTests {
    /// How many bytes are between two places where a connection is cut, or a hello changed.
    private static let (cutStep, helloStep) = (
        Depth.of(full: 1, quick: 29), Depth.of(full: 1, quick: 10)
    )
    private static let randomHelloCount = Depth.of(full: 1000, quick: 20)

    /// A client that makes a whole handshake each time.
    private static func client(_ version: Version) -> TLSSettings {
        .testClient {
            $0.maximumVersion = version
            $0.resumesSessions = false
        }
    }

    /// Sends 64 bytes in both directions, unless the handshake fails, and calls `body` then.
    private static func exchange(
        _ pair: TLSPair, then body: @escaping @Sendable ([TLSEnd]) -> Void = { _ in }
    ) throws -> JoinableThread {
        let ends = Carrier([pair.server, pair.client])
        return try JoinableThread {
            for end in ends.value { _ = end.output.write(pattern(64)) }
            body(ends.value)
        }
    }

    /// The number of bytes that one side sends up to the end of its 64 bytes, or a few less.
    private static func byteCount(_ client: TLSSettings, _ server: TLSSettings, ofServer: Bool) throws -> Int
    {
        let relayed = try RelayedPair(client, server)
        let exchanging = try exchange(relayed.pair) { ends in
            for end in ends { #expect(end.input.read(exactly: 64) == pattern(64)) }
            for end in ends { end.close() }
        }
        let count = relayed.run(ofServer: ofServer)
        exchanging.join()
        // The sizes of signatures differ, and the end is announced.
        return count - 8 - 31
    }

    @Test(arguments: [Version.tls12, .tls13], [true, false])
    func `a connection that is cut at any byte fails`(version: Version, ofServer: Bool) throws {
        let (client, server) = (Self.client(version), try TLSSettings.testServer())
        let count = try Self.byteCount(client, server, ofServer: ofServer)
        #expect(count > 300)
        for limit in stride(from: 0, to: count, by: Self.cutStep) {
            let relayed = try RelayedPair(client, server)
            let exchanging = try Self.exchange(relayed.pair)
            relayed.run(limit: limit, ofServer: ofServer)
            exchanging.join()
            for end in [relayed.pair.client, relayed.pair.server] {
                _ = end.input.readToEnd()
                #expect(end.input.streamStatus == .error, "after \(limit) bytes")
                end.close()
            }
        }
    }

    @Test func `a hello with any byte changed, or whatever stands for one, fails`() throws {
        let (settings, hello) = (try TLSSettings.testServer(), OpenSSLClient.hello)
        #expect(hello.count > 100)
        var generator = SeededGenerator(seed: 7)
        var texts = stride(from: 0, to: hello.count, by: Self.helloStep).map { index in
            var bytes = hello
            bytes[index] ^= index % 2 == 0 ? 0x01 : 0xFF
            return bytes
        }
        for round in 0..<Self.randomHelloCount {
            let bytes = (0..<Int.random(in: 1...300, using: &generator)).map { _ in
                UInt8.random(in: 0...255, using: &generator)
            }
            // The head of a record, as long as the rest or longer.
            texts.append(
                round % 2 == 0 ? [22, 3, 1, 0, UInt8(truncatingIfNeeded: bytes.count), 1, 0] + bytes : bytes)
        }
        // The peers' sockets stay open: the kernel would reset one with unread bytes.
        let pairs = try texts.map { text in
            let (server, peer) = try TLSEnd.withPeer(settings)
            peer.send(text)
            peer.shutDown()
            return (server, peer)
        }
        for (server, _) in pairs {
            #expect(server.input.readToEnd().isEmpty)
            #expect(server.input.streamError is TLSError)
            server.close()
        }
    }

    @Test func `streams can be closed at any moment`() throws {
        let (client, server) = (TLSSettings.testClient(), try TLSSettings.testServer())
        for round in 0..<48 {
            let pair = try TLSPair(client: client, server: server, isTCP: round % 2 == 0)
            var passes = round / 4
            serve(pair.streams) {
                passes -= 1
                return passes < 0 || pair.streams.allSatisfy { $0.streamStatus == .open }
            }
            if round % 3 == 0 { _ = pair.client.output.write([1]) }
            let (first, left) =
                round % 4 < 2 ? (pair.client, pair.server) : (pair.server, pair.client)
            first.close()
            _ = left.input.readToEnd()
            #expect([.atEnd, .error].contains(left.input.streamStatus))
            left.close()
        }
    }

    @Test func `a process may exit while handshakes are made`() async {
        await #expect(processExitsWith: .exitCode(7)) {
            // Before the test's certificates, so that the library is the first to use OpenSSL.
            _ = try? TLSIdentity(certificate: [], key: [])
            let (client, server) = (TLSSettings.testClient(), try TLSSettings.testServer())
            let pairs = try (0..<100).map { _ in try TLSPair(client: client, server: server) }
            pairs[20].settle()
            exit(7)
        }
    }

    /// A listener on the calling thread's loop, whose connections are opened and kept.
    private final class Server: ConnectionDelegate {
        private(set) var connections: [Connection] = []
        private(set) var errors: [any Error] = []
        private(set) var listener: Listener!

        init(_ security: Connection.Security) throws {
            listener = try Listener(.ipv4Loopback(port: 0), security: security) { [unowned self] in
                connections.append($1)
                $1.open(delegate: self, forMode: .default)
            }
            try RunLoop.current.add(listener, forMode: .default)
        }

        func connection(_ connection: Connection, handle event: Connection.Event) {
            guard case .errorOccurred(let error) = event else { return }
            errors.append(error)
            connection.close()
        }

        /// Connects a client, until its first event.
        func statusOfClient() throws -> Stream.Status {
            let (client, recorder) = (TLSEnd(Connection(to: listener.localAddress)), Recorder())
            defer { client.close() }
            try client.input.beginTLS(.testClient())
            client.input.delegate = recorder
            client.input.schedule(in: .current, forMode: .default)
            client.input.open()
            RunLoop.current.serve { !recorder.events.isEmpty }
            return client.input.streamStatus
        }
    }

    @Test func `a flood of handshakes that go no further leaves room for a client`() throws {
        let server = try Server(.tls(.testServer()))
        let (hello, address) = (OpenSSLClient.hello, server.listener.localAddress)
        let peers = try (0..<100).map { round in
            let peer = try SocketPeer(connectedTo: address)
            peer.send(round % 3 == 0 ? Array(hello.dropLast()) : hello)
            if round % 2 == 0 { peer.reset() }
            return peer
        }
        #expect(try server.statusOfClient() == .open)
        for connection in server.connections { connection.close() }
        server.listener.close()
        withExtendedLifetime(peers) {}
    }

    @Test func `settings that change are asked for at each handshake, and bad ones fail the connection`()
        throws
    {
        let (good, expired) = (
            try TLSSettings.testServer(), try TLSSettings.testServer(TestCertificates.expired)
        )
        let current = Shared<TLSSettings?>(good)
        let server = try Server(
            .tls(forEachHandshake: {
                guard let settings = current.value else { throw Errno.noSuchFileOrDirectory }
                return settings
            }))
        for settings in [.server(), .client(), nil, expired, good] as [TLSSettings?] {
            current.value = settings
            #expect(try server.statusOfClient() == (settings == good ? .open : .error))
        }
        #expect(server.errors.map { $0 is TLSError } == [true, true, false, true])
        #expect((server.errors[2] as? IOError)?.errno == .noSuchFileOrDirectory)
        for connection in server.connections { connection.close() }
        server.listener.close()
    }

    @Test func `settings that cannot be used now are refused, and a listener takes no client's`() async {
        #expect(throws: TLSError.self) { try Connection.Security.tls(forEachHandshake: { .server() }) }
        await #expect(processExitsWith: .failure) {
            _ = try Listener(.ipv4Loopback(port: 0), security: .tls(.client())) { _, _ in }
        }
    }
}
