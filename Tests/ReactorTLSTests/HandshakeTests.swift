import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct HandshakeTests {
    @Test(arguments: [TLSSettings.Version.tls12, .tls13], [true, false])
    func `a client and a server agree, and exchange bytes`(version: TLSSettings.Version, isTCP: Bool) throws {
        let client = TLSSettings.testClient { $0.maximumVersion = version }
        let pair = try TLSPair(client: client, server: .testServer(), isTCP: isTCP).opened()
        for (from, to) in [(pair.client, pair.server), (pair.server, pair.client)] {
            from.output.writeAll(pattern(1000))
            #expect(to.input.read(exactly: 1000) == pattern(1000))
        }
        let session = try #require(pair.client.input.tlsSession)
        #expect(session.version == (version == .tls12 ? "TLSv1.2" : "TLSv1.3"))
        #expect(session.serverName == "localhost" && !session.cipher.isEmpty && !session.isResumed)
        #expect(session.peerCertificates.count == 1)
        #expect("\(session)" == "\(session.version), \(session.cipher), localhost")
        #expect(pair.server.output.tlsSession?.serverName == "localhost")
        #expect(pair.server.output.tlsSession?.peerCertificates.isEmpty == true)
        pair.close()
    }

    @Test(arguments: [TLSSettings.Version.tls12, .tls13])
    func `both directions carry many records, and end in order`(version: TLSSettings.Version) throws {
        let client = TLSSettings.testClient { $0.maximumVersion = version }
        let pair = try TLSPair(client: client, server: .testServer(), isTCP: true).opened()
        let expected = pattern(3_000_000)
        let (sender, receiver) = (Carrier(pair.server), Carrier(pair.client))
        let answer = Answer<[UInt8]>()
        let reading = try JoinableThread { answer.give(receiver.value.input.readToEnd(by: 40_000)) }
        let writing = try JoinableThread {
            sender.value.output.writeAll(expected)
            try? sender.value.output.shutDown()
        }
        writing.join()
        reading.join()
        #expect(answer.wait() == expected)
        #expect(pair.client.input.streamStatus == .atEnd)
        // The other direction is still open.
        pair.client.output.writeAll([1, 2, 3])
        #expect(pair.server.input.read(exactly: 3) == [1, 2, 3])
        pair.client.close()
        #expect(pair.server.input.readToEnd().isEmpty)
        #expect(pair.server.input.streamStatus == .atEnd)
        pair.close()
    }

    @Test func `the peer of a host needs no name of its own`() throws {
        let listener = try Listener(.ipv4Loopback(port: 0), tls: .testServer()) { _, connection in
            for stream in [connection.input, connection.output] as [Stream] { stream.open() }
            connection.output.writeAll([7])
            for stream in [connection.input, connection.output] as [Stream] { stream.close() }
        } faults: {
            Issue.record($1)
        }
        try RunLoop.current.add(listener, forMode: .default)
        let port = try #require(listener.localAddress.port)
        for (host, name) in [("localhost", "localhost"), ("127.0.0.1", nil)] {
            let (input, output) = Stream.connection(toHost: host, port: port)
            try input.startTLS(.testClient(nil))
            let recorder = Recorder()
            recorder.onEvent = { stream, event in
                if event == .hasBytesAvailable {
                    recorder.bytes += (stream as! InputStream).read(exactly: 1)
                }
            }
            for stream in [input, output] as [Stream] {
                stream.delegate = recorder
                stream.schedule(in: .current, forMode: .default)
                stream.open()
            }
            RunLoop.current.serve { !recorder.bytes.isEmpty || recorder.count(.errorOccurred) > 0 }
            #expect(recorder.bytes == [7], "\(input.streamError.map { "\($0)" } ?? "")")
            #expect(input.tlsSession?.serverName == name)
            for stream in [input, output] as [Stream] { stream.close() }
        }
        listener.close()
    }

    // MARK: What is checked

    static let untrustworthy: [(Certificate, TLSError.Reason)] = [
        (TestCertificates.expired, .expired), (TestCertificates.early, .notYetValid),
        (TestCertificates.example, .wrongName("localhost")), (TestCertificates.selfSigned, .selfSigned),
        (
            Certificate(
                "localhost", names: ["DNS:localhost"], issuedBy: Certificate("Other", isAuthority: true)),
            .unknownIssuer
        ),
    ]

    @Test(arguments: untrustworthy.indices, [TLSSettings.Version.tls12, .tls13])
    func `a certificate that does not prove the name is an error`(
        index: Int, version: TLSSettings.Version
    ) throws {
        let (certificate, reason) = Self.untrustworthy[index]
        let client = TLSSettings.testClient { $0.maximumVersion = version }
        let pair = try TLSPair(client: client, server: .testServer(certificate)).settle()
        #expect(pair.client.error?.reason == reason)
        for stream in pair.client.streams { #expect(stream.streamStatus == .error) }
        #expect(pair.client.error?.peer.hasPrefix("descriptor ") == true)
        // With TLS 1.3 the server is done before the client has checked it.
        #expect(pair.server.input.readToEnd().isEmpty)
        guard case .alert = pair.server.error?.reason else {
            Issue.record("the server was not told: \(pair.server.error.map { "\($0)" } ?? "no error")")
            return
        }
        pair.close()
    }

    @Test func `a name is needed where the connection has none`() throws {
        let pair = try TLSPair(client: .testClient(nil), server: .testServer())
        waitUntil { pair.client.input.streamStatus != .opening }
        #expect(pair.client.error?.reason == .noName)
        pair.close()
    }

    @Test func `the system's trust does not include the tests' authority`() throws {
        let pair = try TLSPair(client: .testClient { $0.trust = .system }, server: .testServer()).settle()
        #expect([.unknownIssuer, .selfSigned].contains(pair.client.error?.reason))
        pair.close()
    }

    @Test func `trust in several sources is trust in each`() throws {
        let other = Certificate("Other authority", isAuthority: true)
        let leaf = Certificate("localhost", names: ["DNS:localhost"], issuedBy: other)
        let trust = TLSTrust.anyOf([
            .system, TestCertificates.trust, .anyOf([.certificates(other.certificateText)]),
        ])
        for certificate in [TestCertificates.localhost, leaf] {
            try TLSPair(client: .testClient { $0.trust = trust }, server: .testServer(certificate)).opened()
                .close()
        }
        let stranger = try TLSPair(
            client: .testClient { $0.trust = trust }, server: .testServer(TestCertificates.selfSigned)
        ).settle()
        #expect(stranger.client.error?.reason == .selfSigned)
        stranger.close()
    }

    @Test func `checks end only where the settings say so`() throws {
        let anyName = TLSSettings.testClient("elsewhere") { $0.verification = .chainWithoutName }
        try TLSPair(client: anyName, server: .testServer()).opened().close()
        let stranger = try TLSPair(client: anyName, server: .testServer(TestCertificates.selfSigned)).settle()
        #expect(stranger.client.error?.reason == .selfSigned)
        let anyone = TLSSettings.testClient(nil) { $0.verification = .disabled }
        try TLSPair(client: anyone, server: .testServer(TestCertificates.expired)).opened().close()
    }

    @Test func `an address is checked as an address, and not sent as a name`() throws {
        // The interface is this machine's, and not in the certificate.
        for address in ["127.0.0.1", "::1", "[::1]", "::1%lo"] {
            let pair = try TLSPair(client: .testClient(address), server: .testServer()).opened()
            #expect(pair.server.input.tlsSession?.serverName == nil)
            pair.close()
        }
        let other = try TLSPair(client: .testClient("127.0.0.2"), server: .testServer()).settle()
        #expect(other.client.error?.reason == .wrongName("127.0.0.2"))
        for text in ["fe80::1%no-interface", "[localhost]", "127.0.0.1:443"] {
            let pair = try TLSPair(client: .testClient(text), server: .testServer())
            waitUntil { pair.client.input.streamStatus != .opening }
            guard case .invalidSettings = pair.client.error?.reason else {
                Issue.record("\(text) is a name")
                continue
            }
            pair.close()
        }
    }

    @Test func `a revoked certificate is an error`() throws {
        let revoked = TestCertificates.localhost
        let list = TestCertificates.authority.revocationList(of: [revoked])
        let trust = TLSTrust.certificates(TestCertificates.authority.certificateText + list)
        let pair = try TLSPair(client: .testClient { $0.trust = trust }, server: .testServer(revoked))
            .settle()
        #expect(pair.client.error?.reason == .revoked)
        let empty = TestCertificates.authority.revocationList(of: [])
        let other = TLSTrust.certificates(TestCertificates.authority.certificateText + empty)
        try TLSPair(client: .testClient { $0.trust = other }, server: .testServer(revoked)).opened().close()
    }

    @Test func `a chain is followed to its authority, unless it is too long`() throws {
        var (issuer, chain) = (TestCertificates.intermediate, TestCertificates.intermediate.certificateText)
        func certificate() throws -> TLSIdentity {
            let leaf = Certificate("localhost", names: ["DNS:localhost"], issuedBy: issuer)
            return try TLSIdentity(certificate: leaf.certificateText + chain, key: leaf.keyText)
        }
        let pair = try TLSPair(client: .testClient(), server: .server(certificate())).opened()
        #expect(pair.client.input.tlsSession?.peerCertificates.count == 2)
        pair.close()
        for index in 0..<10 {
            issuer = Certificate("Intermediate \(index)", isAuthority: true, issuedBy: issuer, serial: index)
            chain += issuer.certificateText
        }
        let long = try TLSPair(client: .testClient(), server: .server(certificate())).settle()
        #expect(long.client.error?.reason == .chainTooLong)
    }

    @Test func `a chain that ends in an unknown root is not called self-signed`() throws {
        let other = Certificate("Other", isAuthority: true)
        let leaf = Certificate("localhost", names: ["DNS:localhost"], issuedBy: other)
        let identity = try TLSIdentity(
            certificate: leaf.certificateText + other.certificateText, key: leaf.keyText)
        let pair = try TLSPair(client: .testClient(), server: .server(identity)).settle()
        #expect(pair.client.error?.reason == .untrustedRoot)
        pair.close()
    }

    @Test func `a program decides on the chain`() throws {
        for accepts in [true, false] {
            let seen = Shared<TLSPeerVerifier.Evidence?>(nil)
            let verifier = TLSPeerVerifier { evidence in
                seen.value = evidence
                return accepts
            }
            let client = TLSSettings.testClient { $0.peerVerifier = verifier }
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
    }

    // MARK: Versions, protocols and identities

    @Test func `peers without a common version fail`() throws {
        let pair = try TLSPair(
            client: .testClient { $0.maximumVersion = .tls12 },
            server: .testServer { $0.minimumVersion = .tls13 }
        ).settle()
        #expect(pair.server.error?.reason == .noCommonVersion)
        #expect(pair.client.error?.reason == .alert(70, "protocol version"))
    }

    @Test func `the server's preference decides on the application protocol`() throws {
        let client = TLSSettings.testClient { $0.applicationProtocols = ["http/1.1", "h2"] }
        let pair = try TLSPair(
            client: client, server: .testServer { $0.applicationProtocols = ["h2", "http/1.1"] }
        ).opened()
        #expect(pair.client.input.tlsSession?.applicationProtocol == "h2")
        #expect(pair.server.input.tlsSession?.applicationProtocol == "h2")
        pair.close()
        let none = try TLSPair(client: client, server: .testServer()).opened()
        #expect(none.client.input.tlsSession?.applicationProtocol == nil)
        none.close()
        let other = try TLSPair(client: client, server: .testServer { $0.applicationProtocols = ["imap"] })
            .settle()
        #expect(other.client.error?.reason == .alert(120, "no application protocol"))
    }

    @Test func `a server presents the certificate for the name that the client asks for`() throws {
        let identities = [try TestCertificates.localhost.identity, try TestCertificates.example.identity]
        let server = try TLSSettings.testServer { $0.identities = identities }
        for name in ["localhost", "localhost.", "example.org", "www.example.org", "127.0.0.1"] {
            try TLSPair(client: .testClient(name), server: server).opened().close()
        }
        let unknown = try TLSPair(client: .testClient("other.org"), server: server).settle()
        #expect(unknown.client.error?.reason == .wrongName("other.org"))
    }

    @Test(arguments: [TLSSettings.Version.tls12, .tls13])
    func `a server checks the certificates of its clients`(version: TLSSettings.Version) throws {
        let identity = try TestCertificates.client.identity
        func settle(_ wanted: TLSSettings.ClientCertificates, _ own: TLSIdentity?) throws -> TLSPair {
            let client = TLSSettings.testClient {
                $0.identities = own.map { [$0] } ?? []
                $0.maximumVersion = version
            }
            let pair = try TLSPair(client: client, server: .testServer { $0.clientCertificates = wanted })
                .settle()
            if pair.server.input.streamStatus == .open { pair.server.output.writeAll([1]) }
            return pair
        }
        for wanted in [TLSSettings.ClientCertificates.requested, .required] {
            let pair = try settle(wanted, identity)
            #expect(pair.client.input.read(exactly: 1) == [1])
            #expect(pair.server.input.tlsSession?.peerCertificates.count == 1)
            pair.close()
        }
        let anonymous = try settle(.requested, nil)
        #expect(anonymous.client.input.read(exactly: 1) == [1])
        anonymous.close()
        let rejected = try settle(.required, nil)
        #expect(rejected.server.error?.reason == .noCertificate)
        #expect(rejected.client.input.read(exactly: 1).isEmpty)
        guard case .alert = rejected.client.error?.reason else {
            Issue.record("the client was not told")
            return
        }
        let stranger = try settle(.requested, try TestCertificates.selfSigned.identity)
        #expect(stranger.server.error?.reason == .selfSigned)
    }

    @Test func `settings that cannot be used are refused when they are set`() throws {
        let (input, output) = Stream.connection(to: .ipv4Loopback(port: 1))
        var bad = [TLSSettings.server()]
        bad.append(.testClient { $0.applicationProtocols = [""] })
        bad.append(.testClient { $0.trust = .file("/nonexistent") })
        bad.append(.testClient { $0.trust = .directory("/nonexistent") })
        bad.append(.testClient { $0.trust = .directory("/dev/null") })
        bad.append(.testClient { $0.trust = .certificates([1, 2, 3]) })
        bad.append(.testClient { $0.trust = .anyOf([]) })
        bad.append(.testClient { $0.trust = .anyOf([TestCertificates.trust, .file("/nonexistent")]) })
        bad.append(.testClient { ($0.minimumVersion, $0.maximumVersion) = (.tls13, .tls12) })
        for settings in bad {
            let error = #expect(throws: TLSError.self) { try input.startTLS(settings) }
            guard case .invalidSettings = error?.reason else {
                Issue.record("\(settings)")
                continue
            }
        }
        #expect(throws: TLSError.self) { try InputStream(data: [1]).startTLS(.testClient()) }
        withExtendedLifetime(output) {}
    }

    @Test func `the reason says why a stream cannot be protected`() throws {
        func reason(_ stream: Stream) -> String {
            let error = #expect(throws: TLSError.self) { try stream.startTLS(.testClient()) }
            return error?.description ?? ""
        }
        #expect(reason(InputStream(data: [1])).contains("needs the stream of a socket"))
        let pair = try TLSPair(client: .testClient(), server: .testServer()).opened()
        #expect(reason(pair.client.input).contains("has TLS"))
        pair.close()
        #expect(reason(pair.client.input).contains("closed stream"))
        let failed = try TLSPair(client: .testClient("elsewhere"), server: .testServer()).settle()
        #expect(reason(failed.client.input).contains("the certificate is not for elsewhere"))
        failed.close()
    }

    @Test func `identities come from PEM and PKCS 12, and keys must fit`() throws {
        let (localhost, example) = (TestCertificates.localhost, TestCertificates.example)
        let leaf = Certificate("localhost", names: ["DNS:localhost"], issuedBy: TestCertificates.intermediate)
        let archive = leaf.archive(password: "secret", chain: [TestCertificates.intermediate])
        let pair = try TLSPair(
            client: .testClient(), server: .server(TLSIdentity(pkcs12: archive, password: "secret"))
        ).opened()
        #expect(pair.client.input.tlsSession?.peerCertificates.count == 2)
        pair.close()
        for password in ["wrong", "secret\0"] {
            #expect(throws: TLSError.self) { try TLSIdentity(pkcs12: archive, password: password) }
        }
        #expect(throws: TLSError.self) {
            try TLSIdentity(
                certificate: localhost.certificateText, key: localhost.keyText, password: "\0")
        }
        #expect(throws: TLSError.self) { try TLSIdentity(pkcs12: [1, 2, 3], password: "") }
        #expect(throws: TLSError.self) { try TLSIdentity(certificate: [], key: localhost.keyText) }
        #expect(throws: TLSError.self) { try TLSIdentity(certificate: localhost.certificateText, key: []) }
        #expect(throws: TLSError.self) {
            try TLSIdentity(certificate: localhost.certificateText, key: example.keyText)
        }
        let folder = TemporaryFolder()
        let both = try folder.file(leaf.certificateText + leaf.keyText, name: "both.pem").string
        _ = try TLSIdentity(certificateFile: both, keyFile: both)
        let error = #expect(throws: TLSError.self) {
            try TLSIdentity(certificateFile: "/missing.pem", keyFile: both)
        }
        #expect(error?.description.contains("/missing.pem") == true)
    }
}
