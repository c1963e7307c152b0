import Glibc
import Reactor
import ReactorFoundation
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamRequirementTests {
    /// No program has it, with or without ReactorTLS.
    private static let tls = StreamSocketSecurityLevel.ssLv3

    private func isRefused(_ stream: Stream) -> Bool {
        (stream.streamError as? IOError)?.reason == .securityUnavailable(level: Self.tls.rawValue)
    }

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `a security level set before the opening, or during it, keeps both halves from opening`(
        origin: SocketOrigin, isOpening: Bool
    ) throws {
        let (fixture, recorder) = (try SocketFixture(origin), Recorder())
        if isOpening, origin != .descriptor { fixture.input.start(recorder) }
        #expect(fixture.output.setProperty(Self.tls, forKey: .socketSecurityLevelKey))
        for stream in fixture.streams { stream.open() }
        if fixture.input.delegate != nil { RunLoop.current.serve { recorder.events == [.errorOccurred] } }
        for stream in fixture.streams {
            #expect(stream.streamStatus == .error && isRefused(stream))
            #expect(stream.property(forKey: .socketSecurityLevelKey) as? String == Self.tls.rawValue)
        }
        #expect(fixture.output.write([1]) == 0 && fixture.input.read(upTo: 1).isEmpty)
        #expect(isOpening || fixture.server?.hasPendingConnection != true)
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a security level set later ends both halves without plain bytes`(origin: SocketOrigin) throws {
        let (fixture, recorder) = (try SocketFixture(origin), Recorder())
        try fixture.openBoth()
        fixture.output.start(recorder)
        #expect(fixture.output.write([1, 2]) == 2)
        try fixture.peer.send([3, 4])
        #expect(fixture.input.setProperty(Self.tls, forKey: .socketSecurityLevelKey))
        #expect(fixture.output.write([5]) == 0)
        #expect(fixture.input.read(upTo: 10) == [])
        for stream in fixture.streams {
            #expect(isRefused(stream))
            #expect(!stream.setProperty(StreamSocketSecurityLevel.none, forKey: .socketSecurityLevelKey))
        }
        RunLoop.current.serve { recorder.events.contains(.errorOccurred) }
        fixture.closeBoth()
        #expect(try fixture.peer.receive(10) == [1, 2])
    }

    @Test(arguments: SocketOrigin.allCases)
    func `requirements that were removed before opening have no effect`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        let isProxied = fixture.input.setProperty([String: Any](), forKey: .socksProxyConfigurationKey)
        #expect(isProxied == (origin != .descriptor))
        fixture.output.setProperty(nil, forKey: .socksProxyConfigurationKey)
        fixture.input.setProperty(Self.tls, forKey: .socketSecurityLevelKey)
        fixture.output.setProperty(StreamSocketSecurityLevel.none, forKey: .socketSecurityLevelKey)
        try fixture.openBoth()
        #expect(!fixture.input.setProperty([String: Any](), forKey: .socksProxyConfigurationKey))
        #expect(fixture.input.setProperty(nil, forKey: .socketSecurityLevelKey))
        #expect(fixture.output.write([1]) == 1)
        #expect(try fixture.peer.receive(1) == [1])
    }

    @Test func `a program without ReactorTLS has no security`() async throws {
        #expect(
            try await probeMainLoop("security without TLS") == [
                "TLSv1 true 0 true", "NegotiatedSSL true 0 true", "SSLv3 true 0 true", "None true 1 false",
            ])
    }

    @Test func `a level is a name, a value or a setting, and unknown values require security`() throws {
        typealias Level = StreamSocketSecurityLevel
        for value in [nil, Level.none, Level.none.rawValue, ["kCFStreamSSLLevel": Level.none]] as [Any?] {
            #expect(try failure(ofAskingFor: value) == nil)
        }
        for level in [Level.ssLv2, .ssLv3] {
            for value in [level, level.rawValue, ["kCFStreamSSLLevel": level]] as [Any] {
                #expect(try failure(ofAskingFor: value) == .securityUnavailable(level: level.rawValue))
            }
        }
        let unknown: [Any] = [
            1, true, ["kCFStreamSSLLevel": 3], "TLS 1.3", "",
            // A setting of a security that is not wanted.
            ["kCFStreamSSLLevel": Level.none.rawValue, "kCFStreamSSLPeerName": "x"],
        ]
        for value in unknown { #expect(try failure(ofAskingFor: value) != nil) }
    }

    /// The error of a stream that requires `level`; nil if it opens.
    private func failure(ofAskingFor level: Any?) throws -> IOError.Reason? {
        let fixture = try SocketFixture(.descriptor)
        defer { fixture.closeBoth() }
        fixture.input.setProperty(level, forKey: .socketSecurityLevelKey)
        fixture.input.open()
        if fixture.input.streamStatus == .open { return nil }
        return try #require(fixture.input.streamError as? IOError).reason
    }
}
