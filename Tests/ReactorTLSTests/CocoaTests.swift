import ReactorFoundation
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import Testing

/// Cocoa's properties of security, as programs for a Mac set them.
@Suite(.runLoop) struct CocoaTests {
    private static let settingsKey = Stream.PropertyKey("kCFStreamPropertySSLSettings")
    private static let levelKey = Stream.PropertyKey.socketSecurityLevelKey
    private static let level = "kCFStreamSocketSecurityLevel"
    private static var unchecked: [String: Any] { ["kCFStreamSSLValidatesCertificateChain": false] }

    /// A client and a server, neither protected nor opened.
    private static func ends() throws -> TLSPair {
        let (first, second) = try socketPair()
        return TLSPair(try TLSEnd(first), try TLSEnd(second))
    }

    private typealias Property = (Any, Stream.PropertyKey)

    /// Sets properties of a client, in order, and opens both ends.
    private static func open(
        _ properties: Property..., server: Certificate = TestCertificates.localhost
    ) throws -> TLSPair {
        let pair = try ends()
        for (value, key) in properties { #expect(pair.client.input.setProperty(value, forKey: key)) }
        try pair.server.input.beginTLS(.testServer(server))
        for stream in pair.streams { stream.open() }
        pair.client.settle()
        return pair
    }

    @Test(arguments: ["TLSv1", "NegotiatedSSL"])
    func `a level means TLS with all checks`(name: String) throws {
        for value in [Self.level + name, NSString(string: Self.level + name)] as [Any] {
            let pair = try Self.open((value, Self.levelKey))
            // A socket has no host's name, so that no certificate can be right.
            #expect(pair.client.error?.reason == .noName)
            pair.close()
        }
    }

    @Test func `the settings name the peer, and what is not checked`() throws {
        var settings = Self.unchecked
        settings["kCFStreamSSLPeerName"] = "elsewhere"
        settings["kCFStreamSSLLevel"] = StreamSocketSecurityLevel.negotiatedSSL
        let pair = try Self.open((settings, Self.settingsKey), server: TestCertificates.expired)
            .opened()
        #expect(pair.server.input.tlsSession?.serverName == "elsewhere")
        let trustKey = kCFStreamPropertySSLPeerTrust as Stream.PropertyKey
        let trust = pair.client.input.property(forKey: trustKey) as? TLSSession
        #expect(trust?.peerCertificates.count == 1 && trust == pair.client.output.tlsSession)
        let certificates = pair.client.output.property(forKey: .sslPeerCertificatesKey) as? [[UInt8]]
        #expect(certificates == trust?.peerCertificates)
    }

    @Test(arguments: [true, false, nil])
    func `an untrusted certificate is refused unless the settings disable validation`(
        checks: Bool?
    ) throws {
        var settings: [String: Any] = ["kCFStreamSSLPeerName": "localhost"]
        settings["kCFStreamSSLValidatesCertificateChain"] = checks
        let pair = try Self.open((settings, Self.settingsKey), server: TestCertificates.selfSigned)
        #expect(pair.client.input.streamStatus == (checks == false ? .open : .error))
        let reasons: [TLSError.Reason?] = checks == false ? [nil] : [.selfSigned, .unknownIssuer]
        #expect(reasons.contains(pair.client.error?.reason))
        pair.close()
    }

    @Test func `errors have the domain and the codes of Secure Transport`() throws {
        let settings: [String: Any] = ["kCFStreamSSLPeerName": "localhost"]
        let pair = try Self.open((settings, Self.settingsKey), server: TestCertificates.selfSigned)
        _ = pair.server.input.readToEnd()
        // errSSLXCertChainInvalid, or errSSLUnknownRootCert; errSSLPeerUnknownCA.
        for (end, codes) in [(pair.client, [-9807, -9812]), (pair.server, [-9831])] {
            waitUntil { end.output.streamError != nil }
            let error = try #require(end.output.streamError as NSError?)
            #expect(error.domain == NSOSStatusErrorDomain && codes.contains(error.code), "\(error)")
        }
    }

    @Test func `numbers, nulls and strings of Foundation count`() throws {
        let named = try Self.open(
            (["kCFStreamSSLPeerName": NSNull()], Self.settingsKey), server: TestCertificates.selfSigned)
        #expect([.selfSigned, .unknownIssuer].contains(named.client.error?.reason))
        let settings: [NSString: Any] = ["kCFStreamSSLValidatesCertificateChain": NSNumber(value: false)]
        let pair = try Self.ends()
        #expect(pair.client.input.setProperty(settings, forKey: Self.settingsKey))
        let identity: Any = NSArray(object: try TestCertificates.localhost.identity)
        let own: NSDictionary = [
            "kCFStreamSSLIsServer": NSNumber(value: true), "kCFStreamSSLCertificates": identity,
        ]
        #expect(pair.server.output.setProperty(own, forKey: Self.settingsKey))
        for stream in pair.streams { stream.open() }
        _ = pair.server.output.write([1])
        #expect(pair.client.input.read(exactly: 1) == [1])
    }

    @Test(
        arguments: [(TestCertificates.localhost, nil), (TestCertificates.expired, .expired)]
            as [(Certificate, TLSError.Reason?)])
    func `nothing changes the settings of beginTLS`(
        certificate: Certificate, reason: TLSError.Reason?
    ) throws {
        let pair = try Self.ends()
        let (input, output) = (pair.client.input, pair.client.output)
        // Nor do Cocoa's settings come back that beginTLS has replaced.
        #expect(input.setProperty(Self.unchecked, forKey: Self.settingsKey))
        try input.beginTLS(.testClient())
        let negotiated = StreamSocketSecurityLevel.negotiatedSSL
        #expect(output.property(forKey: Self.levelKey) as? String == negotiated.rawValue)
        #expect(output.setProperty(StreamSocketSecurityLevel.tlSv1, forKey: Self.levelKey))
        for value in [StreamSocketSecurityLevel.ssLv3, StreamSocketSecurityLevel.none, nil] {
            #expect(!output.setProperty(value, forKey: Self.levelKey))
        }
        #expect(!output.setProperty(Self.unchecked, forKey: Self.settingsKey))
        #expect(throws: TLSError.self) { try output.beginTLS(.testClient { $0.verification = .disabled }) }
        try pair.server.input.beginTLS(.testServer(certificate))
        for stream in pair.streams { stream.open() }
        #expect(pair.settle().client.error?.reason == reason)
        #expect(input.streamStatus == (reason == nil ? .open : .error))
    }

    @Test func `a level changes no setting, and makes none available, in either order`() throws {
        let tls: Property = (StreamSocketSecurityLevel.tlSv1, Self.levelKey)
        let old: Property = (StreamSocketSecurityLevel.ssLv3, Self.levelKey)
        let settings: Property = (Self.unchecked, Self.settingsKey)
        let unknown: Property = (["kCFStreamSSLAllowsAnyRoot": true], Self.settingsKey)
        for (first, second) in [(tls, settings), (settings, tls)] {
            #expect(try Self.open(first, second).client.input.streamStatus == .open)
        }
        for (first, second) in [(unknown, tls), (old, settings), (settings, old)] {
            #expect(try Self.open(first, second).client.output.streamError is IOError)
        }
    }

    @Test func `an unknown setting, value or level fails the stream and sends nothing`() throws {
        let (tls, none) = (Self.level + "TLSv1", Self.level + "None")
        let bad: [[String: Any]] = [
            ["kCFStreamSSLAllowsAnyRoot": true], ["kCFStreamSSLValidatesCertificateChain": "no"],
            ["kCFStreamSSLPeerName": 7], ["kCFStreamSSLPeerName": ""],
            ["kCFStreamSSLCertificates": ["server.pem"]],
            ["kCFStreamSSLIsServer": true], ["kCFStreamSSLIsServer": "yes"],
            ["kCFStreamSSLLevel": Self.level + "SSLv3"], ["kCFStreamSSLLevel": 3],
            ["kCFStreamSSLLevel": tls, "kCFStreamPropertySocketSecurityLevel": none],
            ["kCFStreamSSLLevel": none, "kCFStreamPropertySocketSecurityLevel": tls],
            ["kCFStreamSSLLevel": none, "kCFStreamSSLAllowsAnyRoot": true],
            ["kCFStreamSSLLevel": ["kCFStreamSSLLevel": none]],
        ]
        for settings in bad {
            let (client, peer) = try TLSEnd.withPeer()
            #expect(client.input.setProperty(settings, forKey: Self.settingsKey))
            client.open()
            #expect(client.output.write([1]) == 0)
            for stream in client.streams {
                #expect(stream.streamStatus == .error)
                #expect(stream.streamError is IOError || stream.streamError is TLSError)
            }
            client.close()
            #expect(peer.receiveToEnd() == [])
        }
    }

    @Test func `a protection that is taken back before opening is none, and not taken back later`() throws {
        let (pair, none) = (try Self.ends(), StreamSocketSecurityLevel.none)
        let (client, server) = (pair.client, pair.server)
        #expect(client.input.setProperty(Self.unchecked, forKey: Self.settingsKey))
        #expect(client.input.setProperty(none, forKey: Self.levelKey))
        for stream in pair.streams { stream.open() }
        _ = client.output.write([1])
        #expect(server.input.read(exactly: 1) == [1])
        // On an open stream it begins at once.
        #expect(client.input.setProperty(Self.unchecked, forKey: Self.settingsKey))
        try server.input.beginTLS(.testServer())
        _ = client.output.write([2])
        #expect(server.input.read(exactly: 1) == [2])
        for value in [none, StreamSocketSecurityLevel.ssLv3, nil] {
            #expect(!client.output.setProperty(value, forKey: Self.levelKey))
        }
        _ = client.output.write([3])
        #expect(server.input.read(exactly: 1) == [3])
    }
}
