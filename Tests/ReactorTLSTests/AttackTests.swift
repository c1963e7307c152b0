import CReactorOpenSSL
import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What an attacker, an unusual peer or an unusual setting might turn against a connection.
@Suite(.runLoop) struct AttackTests {
    typealias Version = TLSSettings.Version

    // MARK: Trust

    @Test(arguments: [true, false])
    func `a verifier counts although nothing else is checked`(accepts: Bool) throws {
        let seen = Shared<TLSPeerVerifier.Evidence?>(nil)
        let client = TLSSettings.testClient(nil) {
            $0.verification = .disabled
            $0.peerVerifier = TLSPeerVerifier { evidence in
                seen.value = evidence
                return accepts
            }
        }
        let pair = try TLSPair(client: client, server: .testServer(TestCertificates.expired)).settle()
        #expect(pair.client.input.streamStatus == (accepts ? .open : .error))
        #expect(seen.value?.failure == .expired)
        pair.close()
    }

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
            pair.server.output.writeAll([1])
            #expect(pair.client.input.read(exactly: 1) == (round < 2 ? [1] : []))
            if round == 1 { #expect(pair.client.input.tlsSession?.isResumed == true) }
            if round == 2 { #expect(pair.client.error?.reason == .expired) }
            pair.close()
        }
        #expect(evidence.value.map(\.failure) == [.expired, .expired, .expired])
        #expect(evidence.value.map(\.chain) == Array(repeating: evidence.value[0].chain, count: 3))
        #expect(evidence.value[0].chain.count == 1)
    }

    @Test func `a verifier may use other connections`() throws {
        let other = try TLSPair(client: .testClient(), server: .testServer()).opened()
        other.server.output.writeAll(pattern(1000))
        let (used, answer) = (Carrier(other.client), Shared<[UInt8]>([]))
        let client = TLSSettings.testClient {
            $0.peerVerifier = TLSPeerVerifier { evidence in
                answer.value = used.value.input.read(exactly: 1000)
                used.value.output.writeAll(pattern(10))
                return evidence.failure == nil
            }
        }
        let pair = try TLSPair(client: client, server: .testServer()).opened()
        #expect(answer.value == pattern(1000))
        #expect(other.server.input.read(exactly: 10) == pattern(10))
        for each in [pair, other] { each.close() }
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
        for (certificate, reason) in [
            (TestCertificates.localhost, TLSError.Reason.rejected), (TestCertificates.expired, .expired),
        ] {
            let pair = try TLSPair(client: client, server: .testServer(certificate)).settle()
            #expect(pair.client.error?.reason == reason)
            pair.close()
        }
    }

    @Test func `an error of a program in OpenSSL's queue is not the reason of a refusal`() throws {
        for settings in [
            TLSSettings.testClient { $0.trust = .certificates([1]) },
            .testClient { ($0.minimumVersion, $0.maximumVersion) = (.tls13, .tls12) },
        ] {
            Self.failInOpenSSL()
            let (input, output) = Stream.connection(to: .ipv4Loopback(port: 1))
            let error = #expect(throws: TLSError.self) { try input.startTLS(settings) }
            #expect(error?.description.contains("unknown error") == false)
            withExtendedLifetime(output) {}
        }
        Self.failInOpenSSL()
        let (certificate, key) = (
            TestCertificates.localhost.certificateText, TestCertificates.example.keyText
        )
        let error = #expect(throws: TLSError.self) { try TLSIdentity(certificate: certificate, key: key) }
        #expect(error?.description.contains("unknown error") == false)
    }

    @Test func `only alternative names count, and their wildcards stand for whole labels`() throws {
        func reason(_ certificate: Certificate, _ name: String) throws -> TLSError.Reason? {
            let pair = try TLSPair(client: .testClient(name), server: .testServer(certificate))
            waitUntil { pair.client.input.streamStatus != .opening }
            defer { pair.close() }
            return pair.client.error?.reason
        }
        let authority = TestCertificates.authority
        let common = Certificate("localhost", issuedBy: authority)
        #expect(try reason(common, "localhost") == .wrongName("localhost"))
        let partial = Certificate("x", names: ["DNS:w*.example.org"], issuedBy: authority)
        #expect(try reason(partial, "www.example.org") == .wrongName("www.example.org"))
        #expect(try reason(TestCertificates.example, "a.b.example.org") == .wrongName("a.b.example.org"))
        for name in [
            "", ".", ".example.org", String(repeating: "a", count: 256), "example.org\0.b", "127.0.0.1\0.b",
            "127.0.0.1 ", " example.org",
        ] {
            guard case .invalidSettings = try reason(TestCertificates.example, name) else {
                Issue.record("\"\(name)\" is a name")
                continue
            }
        }
    }

    @Test func `revocation lists in files count`() throws {
        let revoked = TestCertificates.localhost
        let text =
            TestCertificates.authority.certificateText
            + TestCertificates.authority.revocationList(of: [revoked])
        let folder = TemporaryFolder()
        let path = try folder.file(text).string
        let pair = try TLSPair(client: .testClient { $0.trust = .file(path) }, server: .testServer(revoked))
            .settle()
        #expect(pair.client.error?.reason == .revoked)
        pair.close()
    }

    @Test func `a chain with a damaged certificate is not an identity`() throws {
        let leaf = TestCertificates.localhost
        let damaged = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
        #expect(throws: TLSError.self) {
            try TLSIdentity(certificate: leaf.certificateText + Array(damaged.utf8), key: leaf.keyText)
        }
        let text = leaf.certificateText + Array("\nAnything else is a comment.\n".utf8)
        _ = try TLSIdentity(certificate: text, key: leaf.keyText)
    }

    // MARK: Servers

    @Test(arguments: [Version.tls12, .tls13], [true, false])
    func `keys of different kinds do not mix up a server's names`(version: Version, isRSAFirst: Bool) throws {
        func certificate(_ name: String, isRSA: Bool) throws -> TLSIdentity {
            try Certificate(
                name, names: ["DNS:\(name)"], issuedBy: TestCertificates.authority, isRSA: isRSA
            ).identity
        }
        let server = TLSSettings.server(
            try certificate("localhost", isRSA: isRSAFirst),
            try certificate("example.org", isRSA: !isRSAFirst))
        for name in ["example.org", "localhost"] {
            let client = TLSSettings.testClient(name) { $0.maximumVersion = version }
            try TLSPair(client: client, server: server).opened().close()
        }
    }

    @Test(arguments: [TLSSettings.ClientCertificates.ignored, .requested])
    func `a server names the issuers of the certificates it wants`(
        wanted: TLSSettings.ClientCertificates
    ) throws {
        let (number, other) = try socketPair()
        let server = TLSPair.end(number)
        try server.input.startTLS(.testServer { $0.clientCertificates = wanted })
        for stream in server.streams { stream.open() }
        let client = OpenSSLClient(SocketPeer(other))
        #expect(client.wantedIssuers == (wanted == .ignored ? [] : ["/CN=Test authority"]))
        server.close()
    }

    @Test func `a server with many issuers names the first ones`() throws {
        let (number, other) = try socketPair()
        let server = TLSPair.end(number)
        let issuers = (0..<33).map { Certificate("Issuer \($0)", isAuthority: true).certificateText }
        try server.input.startTLS(
            .testServer {
                $0.clientCertificates = .requested
                $0.trust = .certificates(Array(issuers.joined()))
            })
        for stream in server.streams { stream.open() }
        #expect(OpenSSLClient(SocketPeer(other)).wantedIssuers == (0..<32).map { "/CN=Issuer \($0)" })
        server.close()
    }

    // MARK: Protected bytes

    @Test func `keys are renewed between records that arrive together`() async throws {
        try await onItsOwnThread {
            let (number, other) = try socketPair()
            let server = TLSPair.end(number)
            try server.input.startTLS(.testServer())
            for stream in server.streams { stream.open() }
            let (client, recorder) = (OpenSSLClient(SocketPeer(other)), Recorder())
            client.write(pattern(100))
            client.renewKeys()
            client.write(pattern(100))
            recorder.onEvent = { stream, event in
                guard event == .hasBytesAvailable else { return }
                var buffer = [UInt8](repeating: 0, count: 100)
                let count = (stream as! InputStream).read(&buffer, maxLength: 100)
                recorder.bytes += buffer.prefix(max(0, count))
            }
            server.input.delegate = recorder
            server.input.schedule(in: .current, forMode: .default)
            RunLoop.current.serve { recorder.bytes.count == 200 }
            #expect(recorder.bytes == pattern(100) + pattern(100))
            server.output.writeAll([7])
            #expect(client.read(upTo: 1) == [7])
            server.close()
        }
    }

    @Test func `a failed read leaves no error in OpenSSL's queue`() throws {
        let (number, other) = try socketPair()
        let server = TLSPair.end(number)
        try server.input.startTLS(.testServer())
        for stream in server.streams { stream.open() }
        let socket = SocketPeer(other)
        let client = OpenSSLClient(socket)
        client.write([1])
        #expect(server.input.read(exactly: 1) == [1])
        socket.send([23, 3, 3, 0, 32] + [UInt8](repeating: 7, count: 32))
        #expect(server.input.read(exactly: 1).isEmpty)
        guard case .protocolViolation = server.error?.reason else {
            Issue.record("\(server.error.map { "\($0)" } ?? "no error")")
            return
        }
        // Other users of OpenSSL on this thread would take it for theirs.
        #expect(ERR_peek_error() == 0)
        server.close()
    }

    @Test func `a handshake that waits for earlier bytes ends within the connect timeout`() throws {
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        SocketPeer.narrow(listening.number)
        let (input, output) = Stream.connection(to: try listening.localAddress)
        input.connectTimeout = .milliseconds(100)
        output.writeBufferSize = 32 << 20
        for stream in [input, output] as [Stream] { stream.open() }
        let peer = try listening.accept()
        for _ in 0..<4 { output.writeAll(pattern(4_000_000)) }
        try input.startTLS(.testClient())
        waitUntil { input.streamStatus == .error && output.streamStatus == .error }
        #expect(input.streamErrno == .timedOut)
        for stream in [input, output] as [Stream] { stream.close() }
        withExtendedLifetime(peer) {}
    }

    @Test func `bytes before the handshake are an error of TLS`() throws {
        let (own, other) = try connectedSockets()
        let client = TLSPair.end(own)
        for stream in client.streams { stream.open() }
        let bytes = Array("220 ready\r\n250 injected\r\n".utf8)
        #expect(write(other, bytes, bytes.count) == bytes.count)
        #expect(client.input.read(exactly: 11) == Array(bytes.prefix(11)))
        try client.input.startTLS(.testClient())
        #expect(client.input.read(exactly: 1).isEmpty)
        #expect(client.error?.reason == .unprotectedBytes)
        #expect(client.output.streamError as? TLSError == client.error)
        client.close()
        close(other)
    }

    @Test func `the handshake of an existing connection is no attempt to connect`() throws {
        let (own, other) = try connectedSockets()
        let server = TLSPair.end(own)
        server.input.connectTimeout = .milliseconds(1)
        try server.input.startTLS(.testServer())
        for stream in server.streams { stream.open() }
        waitUntil { server.streams.allSatisfy { $0.streamStatus == .error } }
        #expect(server.input.streamErrno == .timedOut)
        for stream in server.streams { #expect((stream.streamError as? IOError)?.operation == .handshake) }
        server.close()
        close(other)
    }

    @Test func `a process may exit while handshakes are made`() async {
        for _ in 0..<3 {
            await #expect(processExitsWith: .exitCode(7)) {
                // Before the test's certificates, so that the library is the first to use OpenSSL.
                _ = try? TLSIdentity(certificate: [], key: [])
                let (client, server) = (TLSSettings.testClient(), try TLSSettings.testServer())
                let pairs = try (0..<100).map { _ in try TLSPair(client: client, server: server) }
                waitUntil { pairs[20].client.input.streamStatus == .open }
                exit(7)
            }
        }
    }
}
