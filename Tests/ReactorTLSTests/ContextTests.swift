import CReactorOpenSSL
import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@testable import ReactorTLS

/// What is kept between connections.
@Suite(.runLoop) struct ContextTests {
    @Test func `the value goes that was not used for the longest time`() {
        var values = RecentValues<Int, String>(limit: 3)
        for key in 1...3 { values.set("\(key)", for: key) }
        #expect(values.value(for: 1) == "1")
        // A known key takes no other's place.
        values.set("three", for: 3)
        #expect((1...3).map { values.value(for: $0) } == ["1", "2", "three"])
        values.set("4", for: 4)
        #expect((1...4).map { values.value(for: $0) } == [nil, "2", "three", "4"])
        values.remove(2)
        values.removeAll { $0 == 3 }
        #expect((1...4).map { values.value(for: $0) } == [nil, nil, nil, "4"])
    }

    @Test func `a session is resumed until its verification is a day old`() throws {
        let context = try TLSContext.context(for: .testClient())
        let new = OpenSSLObject(SSL_SESSION_new(), free: SSL_SESSION_free)
        let object = try #require(new)
        let (start, host) = (ContinuousClock.now, Array("example.org:443".utf8))
        context.keep(.init(object: object, verification: start), with: host)
        #expect(context.session(with: host, at: start.advanced(by: .seconds(86_400)))?.object === object)
        #expect(context.session(with: host, at: start.advanced(by: .seconds(86_401))) == nil)
        #expect(context.session(with: host, at: start) == nil)
    }

    @Test(arguments: [Version.tls12, .tls13], [true, false])
    func `a session is resumed unless the settings forbid it, which does not renew its verification`(
        version: Version, resumes: Bool
    ) throws {
        let client = TLSSettings.testClient {
            $0.maximumVersion = version
            $0.resumesSessions = resumes
            // Settings of their own for each case, and so sessions.
            $0.applicationProtocols = ["renewal-\(version)"]
        }
        let server = try TLSSettings.testServer { $0.applicationProtocols = client.applicationProtocols }
        let context = try TLSContext.context(for: client)
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let host = Array("\(try listening.localAddress) localhost".utf8)
        var verifications: [ContinuousClock.Instant] = []
        for round in 0..<3 {
            let pair = try TLSPair(client: client, server: server, at: listening)
            _ = pair.server.output.write([1])
            #expect(pair.client.input.read(exactly: 1) == [1])
            for end in [pair.client, pair.server] {
                #expect(end.input.tlsSession?.isResumed == (resumes && round > 0))
                #expect(end.input.tlsSession?.serverName == "localhost")
            }
            pair.close()
            guard resumes else { continue }
            let session = try #require(context.session(with: host))
            verifications.append(session.verification)
            context.keep(session, with: host)
        }
        #expect(Set(verifications).count == (resumes ? 1 : 0))
    }

    @Test func `equal settings share a context, and paths of other bytes do not`() throws {
        let contexts = try ["a", "b", nil].map { try TLSContext.context(for: .testClient($0)) }
        #expect(contexts.allSatisfy { $0 === contexts[0] })
        let folder = TemporaryFolder()
        // Equal as strings, and the names of two files.
        let names = ["caf\u{e9}.pem", "cafe\u{301}.pem"]
        let others = try names.map { name in
            let path = try folder.file(TestCertificates.authority.certificateText, name: name)
            return try TLSContext.context(for: .testClient { $0.trust = .anyOf([.file(path)]) })
        }
        #expect(names[0] == names[1] && others[0] !== others[1])
    }

    @Test func `a verifier and an identity end with their last use, and so do their contexts`() throws {
        final class Owner: Sendable {}
        weak var owner: Owner?
        weak var identity: TLSIdentity?
        weak var context: TLSContext?
        do {
            let (strong, own) = (Owner(), try TLSIdentity(pkcs12: Self.archive, password: "secret"))
            (owner, identity) = (strong, own)
            let settings = TLSSettings.testClient {
                $0.identities = [own]
                $0.peerVerifier = TLSPeerVerifier { _ in
                    withExtendedLifetime(strong) {}
                    return true
                }
            }
            let pair = try TLSPair(client: settings, server: .testServer()).opened()
            context = try TLSContext.context(for: settings)
            #expect(context != nil && owner != nil && identity != nil)
            pair.close()
        }
        // A thread of the library may release last, or what it has posted to the loop.
        waitUntil {
            RunLoop.current.servePending()
            return owner == nil && identity == nil && context == nil
        }
    }

    private static var archive: [UInt8] { TestCertificates.client.archive(password: "secret") }
}
