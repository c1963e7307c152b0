import CReactorOpenSSL
import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import Testing

/// What an attacker, an unusual peer or an unusual setting might turn against a connection.
@Suite(.runLoop) struct AttackTests {
    @Test(arguments: [Version.tls12, .tls13])
    func `a verifier is called for a resumed session too`(version: Version) throws {
        let (accepts, evidence) = (Shared(true), Shared<[TLSPeerVerifier.Evidence]>([]))
        let client = TLSSettings.testClient {
            $0.maximumVersion = version
            $0.peerVerifier = TLSPeerVerifier { found in
                evidence.update { $0.append(found) }
                return accepts.value
            }
        }
        // Expired, so that what the verification found is kept with the session.
        let server = try TLSSettings.testServer(TestCertificates.expired)
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        for round in 0..<3 {
            if round == 2 { accepts.value = false }
            let pair = try TLSPair(client: client, server: server, at: listening)
            _ = pair.server.output.write([1])
            #expect(pair.client.input.read(exactly: 1) == (round < 2 ? [1] : []))
            if round == 1 { #expect(pair.client.input.tlsSession?.isResumed == true) }
            if round == 2 { #expect(pair.client.error?.reason == .expired) }
            pair.close()
        }
        #expect(evidence.value.map(\.failure) == [.expired, .expired, .expired])
        #expect(evidence.value.map(\.chain) == Array(repeating: evidence.value[0].chain, count: 3))
        #expect(evidence.value[0].chain.count == 1)
    }

    @Test func `a verifier learns that the certificate of a resumed session was valid`() throws {
        let evidence = Shared<[TLSPeerVerifier.Evidence]>([])
        let client = TLSSettings.testClient {
            $0.peerVerifier = TLSPeerVerifier { found in
                evidence.update { $0.append(found) }
                return true
            }
        }
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        for round in 0..<2 {
            let pair = try TLSPair(client: client, server: .testServer(), at: listening)
            _ = pair.server.output.write([1])
            #expect(pair.client.input.read(exactly: 1) == [1])
            #expect(pair.client.input.tlsSession?.isResumed == (round == 1))
            pair.close()
        }
        #expect(evidence.value.map(\.failure) == [nil, nil])
    }

    @Test func `a verifier may use other connections`() throws {
        let other = try TLSPair(client: .testClient(), server: .testServer()).opened()
        _ = other.server.output.write(pattern(1000))
        let (used, answer) = (Carrier(other.client), Shared<[UInt8]>([]))
        let client = TLSSettings.testClient {
            $0.peerVerifier = TLSPeerVerifier { evidence in
                answer.value = used.value.input.read(exactly: 1000)
                _ = used.value.output.write(pattern(10))
                return evidence.failure == nil
            }
        }
        _ = try TLSPair(client: client, server: .testServer()).opened()
        #expect(answer.value == pattern(1000))
        #expect(other.server.input.read(exactly: 10) == pattern(10))
    }

    /// An observer could link two connections that use one ticket.
    @Test func `two connections do not resume one session of TLS 1.3`() throws {
        // Settings of their own, and so sessions.
        let client = TLSSettings.testClient { $0.applicationProtocols = ["once"] }
        let server = try TLSSettings.testServer { $0.applicationProtocols = ["once"] }
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let first = try TLSPair(client: client, server: server, at: listening)
        _ = first.server.output.write([1])
        #expect(first.client.input.read(exactly: 1) == [1])
        first.close()
        let clients = try (0..<2).map { _ in
            let end = TLSEnd(Connection(to: try listening.localAddress))
            try end.input.beginTLS(client)
            end.open()
            return end
        }
        // Both have begun their handshakes before a server answers with further tickets.
        let numbers = try clients.map { _ in try listening.acceptNumber() }
        for number in numbers {
            var byte: UInt8 = 0
            #expect(recv(number, &byte, 1, CInt(MSG_PEEK)) == 1)
        }
        let servers = try numbers.map { try TLSEnd($0, server) }
        let streams = (clients + servers).flatMap(\.streams)
        serve(streams) { streams.allSatisfy { $0.streamStatus != .opening } }
        #expect(clients.count { $0.input.tlsSession?.isResumed == true } == 1)
        for end in clients + servers { end.close() }
    }

    private static let wrongNames: [(Certificate, String?)] = [
        (Certificate("localhost", issuedBy: TestCertificates.authority), "localhost"),
        (
            Certificate("x", names: ["DNS:w*.example.org"], issuedBy: TestCertificates.authority),
            "www.example.org"
        ), (TestCertificates.example, "a.b.example.org"), (TestCertificates.example, nil),
    ]
    private static let noNames = [
        "", ".", ".example.org", String(repeating: "a", count: 256), "example.org\0.b", "127.0.0.1\0.b",
        "127.0.0.1 ", " example.org", "fe80::1%no-interface", "[localhost]", "127.0.0.1:443",
    ]

    @Test func `only alternative names count, and their wildcards stand for whole labels`() throws {
        for (certificate, name) in Self.wrongNames + Self.noNames.map({ (TestCertificates.example, $0) }) {
            switch try refusal(.testClient(name), .testServer(certificate)) {
            case .wrongName(let other)?: #expect(name == other)
            case .noName?: #expect(name == nil)
            case .invalidSettings?: #expect(name.map(Self.noNames.contains) == true)
            default: Issue.record("\"\(name ?? "")\" is right")
            }
        }
    }

    /// Leaves an error in the thread's queue, as a program may that uses OpenSSL by itself.
    private static func failInOpenSSL() { #expect(BIO_new_file("/nonexistent", "r") == nil) }

    @Test func `an error of a program in OpenSSL's queue is not the reason of a rejection`() throws {
        let client = TLSSettings.testClient {
            $0.peerVerifier = TLSPeerVerifier { _ in
                Self.failInOpenSSL()
                return false
            }
        }
        #expect(try refusal(client, .testServer()) == .rejected)
        #expect(try refusal(client, .testServer(TestCertificates.expired)) == .expired)
    }

    @Test func `an error of a program in OpenSSL's queue is not the reason of a refusal`() throws {
        let (input, output) = Connection(to: .ipv4Loopback(port: 1)).streams
        for settings in [
            TLSSettings.testClient { $0.trust = .certificates([1]) },
            .testClient { ($0.minimumVersion, $0.maximumVersion) = (.tls13, .tls12) },
        ] {
            Self.failInOpenSSL()
            let error = #expect(throws: TLSError.self) { try input.beginTLS(settings) }
            #expect(error?.description.contains("unknown error") == false)
        }
        Self.failInOpenSSL()
        let certificate = TestCertificates.localhost.certificateText
        let error = #expect(throws: TLSError.self) {
            try TLSIdentity(certificate: certificate, key: TestCertificates.example.keyText)
        }
        #expect(error?.description.contains("unknown error") == false)
        withExtendedLifetime(output) {}
    }

    @Test func `a failed read leaves no error in OpenSSL's queue`() throws {
        let (server, socket) = try TLSEnd.withPeer(.testServer())
        let client = OpenSSLClient(socket)
        client.write([1])
        #expect(server.input.read(exactly: 1) == [1])
        socket.send([23, 3, 3, 0, 32] + [UInt8](repeating: 7, count: 32))
        #expect(server.input.read(exactly: 1).isEmpty)
        if case .protocolViolation? = server.error?.reason {} else { Issue.record("another error") }
        // Other users of OpenSSL on this thread would take it for theirs.
        #expect(ERR_peek_error() == 0)
    }

    @Test(arguments: [Version.tls12, .tls13], [true, false])
    func `keys of different kinds do not mix up a server's names`(version: Version, isFirst: Bool) throws {
        func identity(_ name: String, isEdwards: Bool) throws -> TLSIdentity {
            let issuer = TestCertificates.authority
            return try Certificate(name, names: ["DNS:\(name)"], issuedBy: issuer, isEdwards: isEdwards)
                .identity
        }
        let server = TLSSettings.server(
            try identity("localhost", isEdwards: isFirst), try identity("example.org", isEdwards: !isFirst))
        for name in ["example.org", "localhost"] {
            let client = TLSSettings.testClient(name) { $0.maximumVersion = version }
            #expect(try refusal(client, server) == nil)
        }
    }

    @Test(arguments: [0, 1, 33])
    func `a server that wants certificates names the first 32 of their issuers`(count: Int) throws {
        let issuers = (0..<count).map { Certificate("Issuer \($0)", isAuthority: true).certificateText }
        let (server, socket) = try TLSEnd.withPeer(
            .testServer {
                guard count > 0 else { return }
                $0.clientCertificates = .requested
                $0.trust = .certificates(Array(issuers.joined()))
            })
        let names = (0..<min(32, count)).map { "/CN=Issuer \($0)" }
        #expect(OpenSSLClient(socket).wantedIssuers == names)
        server.close()
    }

    @Test func `keys are renewed between records that arrive together, without an event`() throws {
        let (server, socket) = try TLSEnd.withPeer(.testServer())
        let (client, recorder) = (OpenSSLClient(socket), Recorder(readingUpTo: 100))
        server.schedule(recorder)
        client.renewKeys()
        RunLoop.current.servePending()
        #expect(recorder.count(.hasBytesAvailable) == 0)
        client.write(pattern(100))
        client.renewKeys()
        client.write(pattern(100))
        RunLoop.current.serve { recorder.bytes.count == 200 }
        #expect(recorder.bytes == pattern(100) + pattern(100))
        _ = server.output.write([7])
        #expect(client.read(exactly: 1) == [7])
    }

    @Test func `bytes before the handshake are an error of TLS`() throws {
        let (client, peer) = try TLSEnd.withPeer()
        client.open()
        peer.send(Array("220 ready\r\n250 injected\r\n".utf8))
        #expect(client.input.read(exactly: 11) == Array("220 ready\r\n".utf8))
        try client.input.beginTLS(.testClient())
        #expect(client.input.read(exactly: 1).isEmpty)
        #expect(client.error?.reason == .unprotectedBytes)
        // The thread of the handshake tells one stream after the other.
        waitUntil { client.output.streamError != nil }
        #expect(client.output.streamError as? TLSError == client.error)
    }

    @Test func `a handshake that waits for earlier bytes ends within the connect timeout`() throws {
        let (number, other) = try connectedSockets()
        SocketPeer.narrow(other)
        let peer = SocketPeer(other)
        let options = Connection.Options(connectTimeout: .milliseconds(50))
        let client = TLSEnd(Connection(descriptor: FileDescriptor(rawValue: number), options: options))
        client.output.writeBufferSize = 32 << 20
        client.open()
        client.settle()
        for _ in 0..<4 { _ = client.output.write(pattern(4_000_000)) }
        try client.input.beginTLS(.testClient())
        serve(client.streams) { client.streams.allSatisfy { $0.streamStatus == .error } }
        #expect(client.input.streamErrno == .timedOut)
        client.close()
        withExtendedLifetime(peer) {}
    }
}
