import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct HandshakeTests {
    @Test(arguments: [Version.tls12, .tls13], [true, false])
    func `a client and a server agree, and exchange bytes`(version: Version, isTCP: Bool) throws {
        let client = TLSSettings.testClient { $0.maximumVersion = version }
        let pair = try TLSPair(client: client, server: .testServer(), isTCP: isTCP).opened()
        for (from, to) in [(pair.client, pair.server), (pair.server, pair.client)] {
            _ = from.output.write(pattern(1000))
            #expect(to.input.read(exactly: 1000) == pattern(1000))
        }
        let session = try #require(pair.client.input.tlsSession)
        #expect(session.version == (version == .tls12 ? "TLSv1.2" : "TLSv1.3"))
        #expect(session.serverName == "localhost" && !session.cipher.isEmpty && !session.isResumed)
        #expect(session.peerCertificates.count == 1)
        #expect(pair.server.output.tlsSession?.serverName == "localhost")
        #expect(pair.server.output.tlsSession?.peerCertificates.isEmpty == true)
    }

    @Test func `the peer of a host needs no name of its own`() throws {
        let listener = try Listener(.ipv4Loopback(port: 0), security: .tls(.testServer())) { _, connection in
            let server = TLSEnd(connection)
            server.open()
            _ = server.output.write([7])
            server.close()
        } acceptErrors: {
            Issue.record($1)
        }
        try RunLoop.current.add(listener, forMode: .default)
        let port = try #require(listener.localAddress.port)
        for (host, name) in [("localhost", "localhost"), ("127.0.0.1", nil)] {
            let (client, recorder) = (
                TLSEnd(Connection(toHost: host, port: port)), Recorder(readingUpTo: 1)
            )
            try client.input.beginTLS(.testClient(nil))
            client.schedule(recorder)
            client.open()
            RunLoop.current.serve { !recorder.bytes.isEmpty || recorder.count(.errorOccurred) > 0 }
            #expect(recorder.bytes == [7], "\(client.input.streamError.map { "\($0)" } ?? "")")
            #expect(client.input.tlsSession?.serverName == name)
            client.close()
        }
    }

    static let untrustworthy: [(Certificate, TLSError.Reason)] = [
        (TestCertificates.expired, .expired), (TestCertificates.early, .notYetValid),
        (TestCertificates.example, .wrongName("localhost")), (TestCertificates.selfSigned, .selfSigned),
        (
            Certificate(
                "localhost", names: ["DNS:localhost"], issuedBy: Certificate("Other", isAuthority: true)),
            .unknownIssuer
        ),
    ]

    @Test(arguments: untrustworthy.indices, [Version.tls12, .tls13])
    func `a certificate that does not prove the name is an error`(index: Int, version: Version) throws {
        let (certificate, reason) = Self.untrustworthy[index]
        let client = TLSSettings.testClient { $0.maximumVersion = version }
        let pair = try TLSPair(client: client, server: .testServer(certificate)).settle()
        #expect(pair.client.error?.reason == reason)
        for stream in pair.client.streams { #expect(stream.streamStatus == .error) }
        #expect(pair.client.error?.subject.hasPrefix("descriptor ") == true)
        // With TLS 1.3 the server is done before the client has checked it.
        #expect(pair.server.input.readToEnd().isEmpty)
        guard case .alert? = pair.server.error?.reason else {
            Issue.record("the server was not told: \(pair.server.error.map { "\($0)" } ?? "no error")")
            return
        }
    }

    @Test func `trust is the authorities of each source, and not those of the system`() throws {
        let other = Certificate("Other authority", isAuthority: true)
        let leaf = Certificate("localhost", names: ["DNS:localhost"], issuedBy: other)
        let system = TLSSettings.testClient { $0.trust = .system }
        #expect([.unknownIssuer, .selfSigned].contains(try refusal(system, .testServer())))
        let sources = [.system, TestCertificates.trust, .anyOf([.certificates(other.certificateText)])]
        let client = TLSSettings.testClient { $0.trust = .anyOf(sources) }
        for certificate in [TestCertificates.localhost, leaf] {
            #expect(try refusal(client, .testServer(certificate)) == nil)
        }
        #expect(try refusal(client, .testServer(TestCertificates.selfSigned)) == .selfSigned)
    }

    @Test func `checks end only where the settings say so`() throws {
        let anyName = TLSSettings.testClient("elsewhere") { $0.verification = .chainWithoutName }
        #expect(try refusal(anyName, .testServer()) == nil)
        #expect(try refusal(anyName, .testServer(TestCertificates.selfSigned)) == .selfSigned)
        let anyone = TLSSettings.testClient(nil) { $0.verification = .disabled }
        #expect(try refusal(anyone, .testServer(TestCertificates.expired)) == nil)
    }

    @Test func `an address is checked as an address, and not sent as a name`() throws {
        // The interface is this machine's, and not in the certificate.
        for address in ["127.0.0.1", "::1", "[::1]", "::1%lo"] {
            let pair = try TLSPair(client: .testClient(address), server: .testServer()).opened()
            #expect(pair.server.input.tlsSession?.serverName == nil)
            pair.close()
        }
        #expect(try refusal(.testClient("127.0.0.2"), .testServer()) == .wrongName("127.0.0.2"))
    }

    @Test(arguments: [true, false])
    func `a revoked certificate is an error, wherever the list is`(isRevoked: Bool) throws {
        let (authority, certificate) = (TestCertificates.authority, TestCertificates.localhost)
        let list = authority.revocationList(of: isRevoked ? [certificate] : [])
        let file = try TemporaryFile(authority.certificateText + list)
        for trust in [TLSTrust.certificates(authority.certificateText + list), .file(file.path)] {
            let client = TLSSettings.testClient { $0.trust = trust }
            #expect(try refusal(client, .testServer(certificate)) == (isRevoked ? .revoked : nil))
        }
    }

    @Test func `a chain is followed to its authority, unless it is too long or its root is unknown`() throws {
        func server(_ issuer: Certificate, _ chain: [UInt8]) throws -> TLSSettings {
            let leaf = Certificate("localhost", names: ["DNS:localhost"], issuedBy: issuer)
            return .server(try TLSIdentity(certificate: leaf.certificateText + chain, key: leaf.keyText))
        }
        var (issuer, chain) = (TestCertificates.intermediate, TestCertificates.intermediate.certificateText)
        #expect(try refusal(.testClient(), server(issuer, chain)) == nil)
        for index in 0..<10 {
            issuer = Certificate("Intermediate \(index)", isAuthority: true, issuedBy: issuer, serial: index)
            chain += issuer.certificateText
        }
        #expect(try refusal(.testClient(), server(issuer, chain)) == .chainTooLong)
        let other = Certificate("Other", isAuthority: true)
        #expect(try refusal(.testClient(), server(other, other.certificateText)) == .untrustedRoot)
    }

    @Test(arguments: [TLSSettings.Verification.full, .disabled], [true, false])
    func `a verifier of the program decides`(verification: TLSSettings.Verification, accepts: Bool) throws {
        let seen = Shared<TLSPeerVerifier.Evidence?>(nil)
        let client = TLSSettings.testClient {
            $0.verification = verification
            $0.peerVerifier = TLSPeerVerifier { evidence in
                seen.value = evidence
                return accepts
            }
        }
        for (certificate, failure) in [
            (TestCertificates.localhost, nil), (TestCertificates.expired, TLSError.Reason.expired),
        ] {
            let pair = try TLSPair(client: client, server: .testServer(certificate)).settle()
            #expect(pair.client.input.streamStatus == (accepts ? .open : .error))
            if !accepts { #expect(pair.client.error?.reason == failure ?? .rejected) }
            #expect(seen.value?.failure == failure && seen.value?.name == "localhost")
            #expect(seen.value?.chain.count == 1)
            pair.close()
        }
    }

    @Test func `peers without a common version fail`() throws {
        let pair = try TLSPair(
            client: .testClient { $0.maximumVersion = .tls12 },
            server: .testServer { $0.minimumVersion = .tls13 }
        ).settle()
        #expect(pair.server.error?.reason == .noCommonVersion)
        #expect(pair.client.error?.reason == .alert(70, "protocol version"))
    }

    @Test(arguments: [(["h2", "http/1.1"], "h2"), ([], nil), (["imap"], nil)] as [([String], String?)])
    func `the server prefers an application protocol`(names: [String], result: String?) throws {
        let client = TLSSettings.testClient { $0.applicationProtocols = ["http/1.1", "h2"] }
        let pair = try TLSPair(client: client, server: .testServer { $0.applicationProtocols = names })
            .settle()
        for end in [pair.client, pair.server] {
            #expect(end.input.tlsSession?.applicationProtocol == result)
        }
        let hasFailed = names == ["imap"]
        #expect(pair.client.error?.reason == (hasFailed ? .alert(120, "no application protocol") : nil))
    }

    @Test func `a server presents the certificate for the name that the client asks for`() throws {
        let identities = [try TestCertificates.localhost.identity, try TestCertificates.example.identity]
        let server = try TLSSettings.testServer { $0.identities = identities }
        for name in ["localhost", "localhost.", "example.org", "www.example.org", "127.0.0.1"] {
            #expect(try refusal(.testClient(name), server) == nil)
        }
        #expect(try refusal(.testClient("other.org"), server) == .wrongName("other.org"))
    }

    /// The reason at the server, if it refuses the client.
    @Test(
        arguments: [Version.tls12, .tls13],
        [
            (.requested, "client", nil), (.required, "client", nil), (.requested, nil, nil),
            (.required, nil, .noCertificate), (.requested, "stranger", .selfSigned),
        ] as [(TLSSettings.ClientCertificates, String?, TLSError.Reason?)])
    func `a server checks the certificates of its clients`(
        version: Version, example: (wanted: TLSSettings.ClientCertificates, own: String?, TLSError.Reason?)
    ) throws {
        let (wanted, own, reason) = example
        let certificate = own == "client" ? TestCertificates.client : TestCertificates.selfSigned
        let identities = own == nil ? [] : [try certificate.identity]
        let client = TLSSettings.testClient {
            $0.identities = identities
            $0.maximumVersion = version
        }
        let pair = try TLSPair(client: client, server: .testServer { $0.clientCertificates = wanted })
            .settle()
        #expect(pair.server.error?.reason == reason)
        if reason == nil {
            _ = pair.server.output.write([1])
            #expect(pair.server.input.tlsSession?.peerCertificates.count == (own == nil ? 0 : 1))
        }
        #expect(pair.client.input.read(exactly: 1) == (reason == nil ? [1] : []))
        if case .alert? = pair.client.error?.reason {
        } else {
            #expect(reason == nil, "the client was not told")
        }
    }

    @Test func `settings that cannot be used are refused when they are set`() throws {
        let (input, output) = Connection(to: .ipv4Loopback(port: 1)).streams
        let bad: [TLSSettings] = [
            .server(), .testClient { $0.applicationProtocols = [""] },
            .testClient { $0.trust = .file("/nonexistent") },
            .testClient { $0.trust = .directory("/nonexistent") },
            .testClient { $0.trust = .directory("/dev/null") },
            .testClient { $0.trust = .certificates([1, 2, 3]) }, .testClient { $0.trust = .anyOf([]) },
            .testClient { $0.trust = .anyOf([TestCertificates.trust, .file("/nonexistent")]) },
            .testClient { ($0.minimumVersion, $0.maximumVersion) = (.tls13, .tls12) },
        ]
        for settings in bad {
            let error = #expect(throws: TLSError.self) { try input.beginTLS(settings) }
            guard case .invalidSettings = error?.reason else {
                Issue.record("\(settings)")
                continue
            }
        }
        withExtendedLifetime(output) {}
    }

    @Test func `a stream that is no socket's, has TLS, or is closed, cannot be protected`() throws {
        let pair = try TLSPair(client: .testClient(), server: .testServer()).opened()
        let closed = try TLSPair(client: .testClient(), server: .testServer()).opened()
        closed.close()
        for stream in [InputStream(data: [1]), pair.client.input, closed.client.input] {
            #expect(throws: TLSError.self) { try stream.beginTLS(.testClient()) }
        }
    }

    @Test func `identities come from PEM and PKCS 12, and keys must fit`() throws {
        let (localhost, example) = (TestCertificates.localhost, TestCertificates.example)
        let leaf = Certificate("localhost", names: ["DNS:localhost"], issuedBy: TestCertificates.intermediate)
        let archive = leaf.archive(password: "secret", chain: [TestCertificates.intermediate])
        let server = TLSSettings.server(try TLSIdentity(pkcs12: archive, password: "secret"))
        let pair = try TLSPair(client: .testClient(), server: server).opened()
        #expect(pair.client.input.tlsSession?.peerCertificates.count == 2)
        pair.close()
        for (bytes, password) in [(archive, "wrong"), (archive, "secret\0"), ([1, 2, 3], "")] {
            #expect(throws: TLSError.self) { try TLSIdentity(pkcs12: bytes, password: password) }
        }
        let (text, comment) = (leaf.certificateText, Array("\nAnything else is a comment.\n".utf8))
        let damaged = Array("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".utf8)
        for (certificate, key, password) in [
            (localhost.certificateText, localhost.keyText, "\0"), ([], localhost.keyText, nil),
            (localhost.certificateText, [], nil), (localhost.certificateText, example.keyText, nil),
            (text + damaged, leaf.keyText, nil),
        ] as [([UInt8], [UInt8], String?)] {
            #expect(throws: TLSError.self) {
                try TLSIdentity(certificate: certificate, key: key, password: password)
            }
        }
        let both = try TemporaryFile(text + comment + leaf.keyText)
        _ = try TLSIdentity(certificateFile: both.path, keyFile: both.path)
        let error = #expect(throws: TLSError.self) {
            try TLSIdentity(certificateFile: "/missing.pem", keyFile: both.path)
        }
        #expect(error?.description.contains("/missing.pem") == true)
    }
}
