import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import Testing

/// The library's TLS with openssl(1) at the other end.
@Suite(.runLoop, .enabled(if: access("/usr/bin/openssl", X_OK) == 0)) struct OpenSSLTests {
    private static let program = "/usr/bin/openssl"
    private let folder = TemporaryFolder()
    private let authority: String

    init() throws {
        authority = try folder.file(TestCertificates.authority.certificateText, name: "authority.pem").string
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `s_server answers a client`(version: String) throws {
        let own = TestCertificates.localhost
        let file = try folder.file(own.certificateText + own.keyText, name: "server.pem").string
        let server = try Child(
            Self.program,
            ["s_server", "-accept", "127.0.0.1:0", "-cert", file, "-rev", "-naccept", "2", version],
            input: .pipe)
        var line = ""
        while !line.hasPrefix("ACCEPT"), let next = server.readLine() { line = next }
        let port = try #require(line.split(separator: ":").last.flatMap { UInt16($0) })
        var settings = TLSSettings.client()
        settings.trust = .file(authority)
        for _ in 0..<2 {
            let client = TLSEnd(Stream.connection(toHost: "localhost", port: port))
            try client.input.startTLS(settings)
            client.open()
            client.output.write("abcdef\n")
            #expect(client.input.read(exactly: 7) == Array("fedcba\n".utf8))
            #expect(client.input.tlsSession?.version == (version == "-tls1_2" ? "TLSv1.2" : "TLSv1.3"))
            // It closes when it reads this.
            client.output.write("CLOSE\n")
            #expect(client.input.readToEnd().isEmpty)
            #expect(client.input.streamStatus == .atEnd)
            client.close()
        }
        server.send(SIGTERM)
        _ = server.wait()
    }

    /// Starts s_client, and serves it with `serve`.
    private static func withClient(
        _ arguments: [String], _ serve: (TLSEnd, Child) throws -> Void
    ) throws -> Child.Ending {
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let client = try Child(
            program,
            ["s_client", "-connect", "\(try listening.localAddress)", "-servername", "localhost"] + arguments,
            input: .pipe)
        let server = try TLSEnd(listening.acceptNumber(), .testServer())
        try serve(server, client)
        server.close()
        client.closeInput()
        return client.wait()
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"])
    func `s_client verifies a server, and both end in order`(version: String) throws {
        let arguments = ["-CAfile", authority, "-verify_return_error", "-quiet", "-no_ign_eof", version]
        let ending = try Self.withClient(arguments) { server, client in
            client.write("hello")
            #expect(server.input.read(exactly: 5) == Array("hello".utf8))
            server.output.write("world")
            #expect(client.readOutput(bytes: 5) == "world")
            client.closeInput()
            #expect(server.input.readToEnd().isEmpty)
            #expect(server.input.streamStatus == .atEnd)
        }
        #expect(ending == .exit(0))
    }

    @Test func `a client cannot begin another handshake`() throws {
        let ending = try Self.withClient(["-tls1_2"]) { server, client in
            client.write("x\n")
            #expect(server.input.read(exactly: 2) == [0x78, 0x0A])
            client.write("R\n")
            #expect(server.input.readToEnd().isEmpty)
        }
        #expect(ending != .exit(0))
    }
}
