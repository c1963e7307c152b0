import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import SystemPackage
import Testing

/// Peers that are cut off, silent, many or hostile.
@Suite struct RobustnessTests {
    /// Passes up to `limit` bytes of each direction on, then ends both connections.
    private static func cut(after limit: Int, fromServer: Bool) throws -> (
        client: TLSPair.End, server: TLSPair.End
    ) {
        let (first, left) = try connectedSockets()
        let (second, right) = try connectedSockets()
        let (client, server) = (TLSPair.end(first), TLSPair.end(second))
        try client.input.startTLS(.testClient())
        try server.input.startTLS(.testServer())
        let peers = (SocketPeer(left), SocketPeer(right))
        let threads = [(peers.1, peers.0, fromServer), (peers.0, peers.1, !fromServer)].map {
            from, to, isLimited in
            try? JoinableThread {
                var rest = isLimited ? limit : .max
                while rest > 0, let bytes = from.receive(upTo: min(rest, 65_536)), !bytes.isEmpty {
                    guard to.send(bytes) else { break }
                    rest -= bytes.count
                }
                for peer in [from, to] { Glibc.shutdown(peer.number, CInt(SHUT_RDWR)) }
            }
        }
        for stream in client.streams + server.streams { stream.open() }
        server.output.writeAll([1, 2, 3])
        _ = (client.input.readToEnd(), server.input.readToEnd())
        for thread in threads { thread?.join() }
        return (client, server)
    }

    /// A handshake of both directions has about 1,400 bytes.
    @Test(arguments: [true, false])
    func `a connection that is cut at any byte fails, and never ends as if it were complete`(fromServer: Bool)
        throws
    {
        for limit in stride(from: 0, to: fromServer ? 1000 : 400, by: 41) {
            let (client, server) = try Self.cut(after: limit, fromServer: fromServer)
            for end in [client, server] {
                #expect(end.input.streamStatus == .error, "after \(limit) bytes")
                end.close()
            }
        }
    }

    @Test func `whatever a client says for a hello, the server fails or waits`() throws {
        var generator = SeededGenerator(seed: 7)
        let settings = try TLSSettings.testServer()
        for round in 0..<100 {
            let (number, other) = try socketPair()
            let (server, peer) = (TLSPair.end(number), SocketPeer(other))
            try server.input.startTLS(settings)
            for stream in server.streams { stream.open() }
            var bytes = (0..<Int.random(in: 1...300, using: &generator)).map { _ in
                UInt8.random(in: 0...255, using: &generator)
            }
            // The head of a record, as long as the rest or longer.
            if round % 2 == 0 { bytes = [22, 3, 1, 0, UInt8(truncatingIfNeeded: bytes.count), 1, 0] + bytes }
            peer.send(bytes)
            peer.shutDown()
            #expect(server.input.readToEnd().isEmpty)
            #expect(server.input.streamError is TLSError)
            server.close()
        }
    }

    @Test func `streams can be closed at any moment`() throws {
        let (client, server) = (TLSSettings.testClient(), try TLSSettings.testServer())
        for round in 0..<60 {
            let pair = try TLSPair(client: client, server: server, isTCP: round % 2 == 0)
            for _ in 0..<round * 20 { sched_yield() }
            if round % 3 == 0 { pair.client.output.writeAll([1]) }
            (round % 4 < 2 ? pair.client : pair.server).close()
            let left = round % 4 < 2 ? pair.server : pair.client
            _ = left.input.readToEnd()
            #expect([.atEnd, .error].contains(left.input.streamStatus))
            pair.close()
        }
    }

    @Test func `a hundred handshakes are made at once`() throws {
        let (client, server) = (TLSSettings.testClient(), try TLSSettings.testServer())
        let pairs = try (0..<100).map { _ in try TLSPair(client: client, server: server) }
        for (index, pair) in pairs.enumerated() { pair.client.output.writeAll([UInt8(index)]) }
        for (index, pair) in pairs.enumerated() {
            #expect(pair.server.input.read(exactly: 1) == [UInt8(index)])
            pair.close()
        }
    }

    @Test func `a certificate is replaced while a listener runs`() async throws {
        try await onItsOwnThread {
            let settings = Shared(try TLSSettings.testServer(TestCertificates.expired))
            var servers: [Listener.Connection] = []
            let listener = try Listener(.ipv4Loopback(port: 0), tls: settings.value) { _, connection in
                for stream in [connection.input, connection.output] as [Stream] { stream.open() }
                servers.append(connection)
            } faults: {
                Issue.record($1)
            }
            try RunLoop.current.add(listener, forMode: .default)
            for status in [Stream.Status.error, .open] {
                let (input, output) = Stream.connection(to: listener.localAddress)
                try input.startTLS(.testClient())
                let recorder = Recorder()
                input.delegate = recorder
                input.schedule(in: .current, forMode: .default)
                input.open()
                RunLoop.current.serve { !recorder.events.isEmpty }
                #expect(input.streamStatus == status)
                for stream in [input, output] as [Stream] { stream.close() }
                settings.value = try TLSSettings.testServer()
            }
            listener.close()
        }
    }
}
