import ReactorFoundation
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import Testing

/// Cocoa's properties of security, as programs for a Mac set them.
@Suite(.runLoop) struct CocoaTests {
    private typealias Pair = (client: TLSPair.End, server: TLSPair.End)

    /// A client and a server, neither protected nor opened.
    private static func ends() throws -> Pair {
        let (first, second) = try socketPair()
        return (TLSPair.end(first), TLSPair.end(second))
    }

    /// Sets the settings of a client, and opens both ends.
    private static func open(
        _ settings: [String: Any], server: Certificate = TestCertificates.localhost
    ) throws -> Pair {
        let (client, other) = try ends()
        #expect(client.input.setProperty(settings, forKey: settingsKey))
        try other.input.startTLS(.testServer(server))
        for stream in client.streams + other.streams { stream.open() }
        waitUntil { client.input.streamStatus != .opening }
        return (client, other)
    }

    private static let settingsKey = Stream.PropertyKey("kCFStreamPropertySSLSettings")
    private static var unchecked: [String: Any] { ["kCFStreamSSLValidatesCertificateChain": false] }

    private static func close(_ pair: Pair) { for end in [pair.client, pair.server] { end.close() } }

    @Test(arguments: ["TLSv1", "NegotiatedSSL"])
    func `a level means TLS with all checks`(level: String) throws {
        for value in [
            "kCFStreamSocketSecurityLevel" + level, NSString(string: "kCFStreamSocketSecurityLevel" + level),
        ] as [Any] {
            let (client, server) = try Self.ends()
            #expect(client.input.setProperty(value, forKey: .socketSecurityLevelKey))
            try server.input.startTLS(.testServer())
            for stream in client.streams + server.streams { stream.open() }
            waitUntil { client.input.streamStatus != .opening }
            // A socket has no host's name, so that no certificate can be right.
            #expect(client.error?.reason == .noName)
            Self.close((client, server))
        }
    }

    @Test func `the settings name the peer, and what is not checked`() throws {
        var settings = Self.unchecked
        settings["kCFStreamSSLPeerName"] = "elsewhere"
        settings["kCFStreamSSLLevel"] = StreamSocketSecurityLevel.negotiatedSSL
        let pair = try Self.open(settings, server: TestCertificates.expired)
        #expect(pair.client.input.streamStatus == .open)
        waitUntil { pair.server.input.streamStatus != .opening }
        #expect(pair.server.input.tlsSession?.serverName == "elsewhere")
        let trust = pair.client.input.property(forKey: .sslPeerTrustKey) as? TLSSession
        #expect(trust?.peerCertificates.count == 1 && trust == pair.client.output.tlsSession)
        let certificates = pair.client.output.property(forKey: .sslPeerCertificatesKey) as? [[UInt8]]
        #expect(certificates == trust?.peerCertificates)
        Self.close(pair)
    }

    @Test func `errors have the domain and the codes of Secure Transport`() throws {
        let settings: [String: Any] = ["kCFStreamSSLPeerName": "localhost"]
        let pair = try Self.open(settings, server: TestCertificates.selfSigned)
        waitUntil { pair.server.input.streamStatus != .opening }
        _ = pair.server.input.readToEnd()
        // errSSLXCertChainInvalid, or errSSLUnknownRootCert; errSSLPeerUnknownCA.
        for (end, codes) in [(pair.client, [-9807, -9812]), (pair.server, [-9831])] {
            let error = try #require(end.output.streamError as NSError?)
            #expect(error.domain == NSOSStatusErrorDomain && codes.contains(error.code), "\(error)")
        }
        Self.close(pair)
    }

    @Test func `numbers, nulls and strings of Foundation count`() throws {
        let named = try Self.open(["kCFStreamSSLPeerName": NSNull()], server: TestCertificates.selfSigned)
        #expect([.selfSigned, .unknownIssuer].contains(named.client.error?.reason))
        Self.close(named)
        let settings: [NSString: Any] = ["kCFStreamSSLValidatesCertificateChain": NSNumber(value: false)]
        let (client, server) = try Self.ends()
        #expect(client.input.setProperty(settings, forKey: Self.settingsKey))
        let identity: Any = NSArray(object: try TestCertificates.localhost.identity)
        let own: NSDictionary = [
            "kCFStreamSSLIsServer": NSNumber(value: true), "kCFStreamSSLCertificates": identity,
        ]
        #expect(server.output.setProperty(own, forKey: Self.settingsKey))
        for stream in client.streams + server.streams { stream.open() }
        server.output.writeAll([1])
        #expect(client.input.read(exactly: 1) == [1])
        Self.close((client, server))
    }

    @Test func `a level changes no setting, in either order`() throws {
        for levelIsFirst in [true, false] {
            let (client, server) = try Self.ends()
            func setLevel() {
                #expect(
                    client.input.setProperty(StreamSocketSecurityLevel.tlSv1, forKey: .socketSecurityLevelKey)
                )
            }
            if levelIsFirst { setLevel() }
            #expect(client.output.setProperty(Self.unchecked, forKey: Self.settingsKey))
            if !levelIsFirst { setLevel() }
            try server.input.startTLS(.testServer())
            for stream in client.streams + server.streams { stream.open() }
            waitUntil { client.input.streamStatus != .opening }
            #expect(client.input.streamStatus == .open)
            Self.close((client, server))
        }
    }

    @Test func `no level and no dictionary changes the settings of startTLS`() throws {
        let level = Stream.PropertyKey.socketSecurityLevelKey
        for (certificate, reason) in [
            (TestCertificates.localhost, nil), (TestCertificates.expired, TLSError.Reason.expired),
        ] {
            let (client, server) = try Self.ends()
            // Nor do Cocoa's settings come back that startTLS has replaced.
            #expect(client.input.setProperty(Self.unchecked, forKey: Self.settingsKey))
            try client.input.startTLS(.testClient())
            #expect(
                client.output.property(forKey: level) as? String
                    == StreamSocketSecurityLevel.negotiatedSSL.rawValue)
            #expect(client.output.setProperty(StreamSocketSecurityLevel.tlSv1, forKey: level))
            for value in [StreamSocketSecurityLevel.ssLv3, StreamSocketSecurityLevel.none, nil] {
                #expect(!client.output.setProperty(value, forKey: level))
            }
            #expect(!client.output.setProperty(Self.unchecked, forKey: Self.settingsKey))
            #expect(throws: TLSError.self) {
                try client.output.startTLS(.testClient { $0.verification = .disabled })
            }
            try server.input.startTLS(.testServer(certificate))
            for stream in client.streams + server.streams { stream.open() }
            waitUntil { client.input.streamStatus != .opening }
            #expect(client.input.streamStatus == (reason == nil ? .open : .error))
            #expect(client.error?.reason == reason)
            Self.close((client, server))
        }
    }

    @Test func `a level makes no settings available, and settings no level`() throws {
        let level = Stream.PropertyKey.socketSecurityLevelKey
        let (tls, old) = (StreamSocketSecurityLevel.tlSv1, StreamSocketSecurityLevel.ssLv3)
        let changes: [[(Any, Stream.PropertyKey)]] = [
            [(["kCFStreamSSLAllowsAnyRoot": true], Self.settingsKey), (tls, level)],
            [(old, level), (Self.unchecked, Self.settingsKey)],
            [(Self.unchecked, Self.settingsKey), (old, level)],
        ]
        for each in changes {
            let (client, server) = try Self.ends()
            for (value, key) in each { #expect(client.input.setProperty(value, forKey: key)) }
            client.output.open()
            #expect(client.output.streamError is StreamRequirementError)
            Self.close((client, server))
        }
    }

    @Test func `an unknown setting, value or level fails the stream and sends nothing`() throws {
        let (tls, none) = ("kCFStreamSocketSecurityLevelTLSv1", "kCFStreamSocketSecurityLevelNone")
        let bad: [[String: Any]] = [
            ["kCFStreamSSLAllowsAnyRoot": true], ["kCFStreamSSLValidatesCertificateChain": "no"],
            ["kCFStreamSSLPeerName": 7], ["kCFStreamSSLPeerName": ""],
            ["kCFStreamSSLCertificates": ["server.pem"]],
            ["kCFStreamSSLIsServer": true], ["kCFStreamSSLIsServer": "yes"],
            ["kCFStreamSSLLevel": "kCFStreamSocketSecurityLevelSSLv3"], ["kCFStreamSSLLevel": 3],
            ["kCFStreamSSLLevel": tls, "kCFStreamPropertySocketSecurityLevel": none],
            ["kCFStreamSSLLevel": none, "kCFStreamPropertySocketSecurityLevel": tls],
            ["kCFStreamSSLLevel": none, "kCFStreamSSLAllowsAnyRoot": true],
            ["kCFStreamSSLLevel": ["kCFStreamSSLLevel": none]],
        ]
        for settings in bad {
            let (client, server) = try Self.ends()
            #expect(client.input.setProperty(settings, forKey: Self.settingsKey))
            for stream in client.streams { stream.open() }
            #expect(client.output.write([1]) == 0)
            for stream in client.streams {
                #expect(stream.streamStatus == .error)
                #expect(stream.streamError is StreamRequirementError || stream.streamError is TLSError)
            }
            for stream in client.streams { stream.close() }
            for stream in server.streams { stream.open() }
            #expect(server.input.readToEnd().isEmpty)
            server.close()
        }
    }

    @Test func `a protection that is taken back before opening is none, and not taken back later`() throws {
        let (client, server) = try Self.ends()
        let none = StreamSocketSecurityLevel.none
        #expect(client.input.setProperty(Self.unchecked, forKey: Self.settingsKey))
        #expect(client.input.setProperty(none, forKey: .socketSecurityLevelKey))
        for stream in client.streams + server.streams { stream.open() }
        client.output.writeAll([1])
        #expect(server.input.read(exactly: 1) == [1])
        // On an open stream it begins at once.
        #expect(client.input.setProperty(Self.unchecked, forKey: Self.settingsKey))
        try server.input.startTLS(.testServer())
        client.output.writeAll([2])
        #expect(server.input.read(exactly: 1) == [2])
        for value in [none, nil] as [Any?] {
            #expect(!client.output.setProperty(value, forKey: .socketSecurityLevelKey))
        }
        #expect(!client.output.setProperty(StreamSocketSecurityLevel.ssLv3, forKey: .socketSecurityLevelKey))
        client.output.writeAll([3])
        #expect(server.input.read(exactly: 1) == [3])
        Self.close((client, server))
    }
}
