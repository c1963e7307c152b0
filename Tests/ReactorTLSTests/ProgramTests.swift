import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// The library's TLS with nginx and openssl(1) at the other end, directly and through proxies of Debian.
@Suite(.runLoop) struct ProgramTests {
    private static func request(
        _ text: String, _ body: [UInt8], _ settings: TLSSettings
    ) throws -> (answer: [UInt8], isResumed: Bool) {
        let server = try Nginx.shared.get()
        let port = try #require(server.secure.split(separator: ":").last.flatMap { UInt16($0) })
        let client = TLSEnd(Connection(toHost: "localhost", port: port))
        try client.input.beginTLS(settings)
        client.open()
        _ = client.output.write(Array(text.utf8) + body)
        let answer = client.input.readToEnd()
        #expect(client.input.streamStatus == .atEnd)
        let session = try #require(client.input.tlsSession)
        #expect(session.applicationProtocol == "http/1.1")
        client.close()
        return (answer, session.isResumed)
    }

    @Test(
        .enabled(if: Nginx.isAvailable, "nginx and openssl are installed or unpacked"),
        arguments: [Version.tls12, .tls13])
    func `nginx sends and takes a file, and resumes the session`(version: Version) throws {
        let server = try Nginx.shared.get()
        var settings = TLSSettings.client()
        settings.trust = .file(server.certificate)
        settings.maximumVersion = version
        settings.applicationProtocols = ["http/1.1"]
        let text = Array(Nginx.text.utf8)
        let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        let first = try Self.request("GET /text.txt \(head)\r\n", [], settings)
        #expect(Array(first.answer.suffix(text.count)) == text)
        #expect(!first.isResumed)
        let name = "upload/tls-\(version)"
        let length = "Content-Length: \(text.count)\r\n"
        let second = try Self.request("PUT /\(name) \(head)\(length)\r\n", text, settings)
        #expect(second.answer.starts(with: Array("HTTP/1.1 201".utf8)))
        #expect(content(of: server.folder.string + "/" + name) == text)
        #expect(second.isResumed)
    }

    private static let hasOpenSSL = access("/usr/bin/openssl", X_OK) == 0

    /// Starts s_client, and serves it with `serve`.
    private static func withClient(
        _ arguments: [String], _ serve: (TLSEnd, Child) throws -> Void
    ) throws -> Child.Ending {
        let listening = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let client = try Child(
            "/usr/bin/openssl",
            ["s_client", "-connect", "\(try listening.localAddress)", "-servername", "localhost"] + arguments,
            input: .pipe)
        let server = try TLSEnd(listening.acceptNumber(), .testServer())
        try serve(server, client)
        server.close()
        client.closeInput()
        return client.wait()
    }

    @Test(.enabled(if: hasOpenSSL), arguments: ["-tls1_2", "-tls1_3"])
    func `s_client verifies a server, and both end in order`(version: String) throws {
        let authority = try TemporaryFile(TestCertificates.authority.certificateText)
        let arguments = [
            "-CAfile", authority.path.string, "-verify_return_error", "-quiet", "-no_ign_eof", version,
        ]
        let ending = try Self.withClient(arguments) { server, client in
            client.write("hello")
            #expect(server.input.read(exactly: 5) == Array("hello".utf8))
            _ = server.output.write("world")
            #expect(client.readOutput(bytes: 5) == "world")
            client.closeInput()
            #expect(server.input.readToEnd().isEmpty)
            #expect(server.input.streamStatus == .atEnd)
        }
        #expect(ending == .exit(0))
    }

    @Test(.enabled(if: hasOpenSSL)) func `a client cannot begin another handshake`() throws {
        let ending = try Self.withClient(["-tls1_2"]) { server, client in
            client.write("x\n")
            #expect(server.input.read(exactly: 2) == [0x78, 0x0A])
            client.write("R\n")
            #expect(server.input.readToEnd().isEmpty)
        }
        #expect(ending != .exit(0))
    }

    // MARK: Proxies

    /// Sends bytes in both directions through `proxy`.
    private static func connect(
        through proxy: StreamProxy, isSecure: Bool = true, to host: String = "localhost"
    ) throws {
        let listening =
            try (try? SocketPeer(listeningAt: .ipv6Any(port: 0)))
            ?? SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let port = try #require(try listening.localAddress.port)
        let connection = Connection(toHost: host, port: port, options: .init(proxy: proxy))
        let client = TLSEnd(connection)
        if isSecure { try client.input.beginTLS(.testClient(nil)) }
        client.open()
        defer { client.close() }
        let server = try TLSEnd(listening.acceptNumber())
        if isSecure { try server.output.beginTLS(.testServer()) }
        server.open()
        defer { server.close() }
        // The server speaks first, so that its bytes follow the proxy's reply.
        for (from, to) in [(server.output, client.input), (client.output, server.input)] {
            let sending = try JoinableThread { [from = Carrier(from)] in
                _ = from.value.write(pattern(300_000))
            }
            #expect(to.read(exactly: 300_000) == pattern(300_000))
            sending.join()
        }
        #expect(connection.peerAddress?.port == proxy.port)
    }

    @Test(.enabled(if: ServerProgram.isAvailable("microsocks"), "microsocks is installed or unpacked"))
    func `microsocks connects with a password`() throws {
        let server = try ServerProgram("microsocks") {
            ["-i", "127.0.0.1", "-p", "\($0)", "-u", "me", "-P", "secret"]
        }
        let proxy = StreamProxy(.socks5, host: "localhost", port: server.port, user: "me", password: "secret")
        for host in ["localhost", "127.0.0.1"] { try Self.connect(through: proxy, to: host) }
        try Self.connect(through: proxy, isSecure: false)
    }

    @Test(.enabled(if: ServerProgram.isAvailable("tinyproxy"), "tinyproxy is installed or unpacked"))
    func `tinyproxy connects with a password`() throws {
        let folder = TemporaryFolder()
        let server = try ServerProgram("tinyproxy") { port in
            let text = "Port \(port)\nListen 127.0.0.1\nLogLevel Critical\nBasicAuth me secret\n"
            return ["-d", "-c", try folder.file(text.utf8).string]
        }
        let proxy = StreamProxy(.http, host: "127.0.0.1", port: server.port, user: "me", password: "secret")
        for isSecure in [true, false] { try Self.connect(through: proxy, isSecure: isSecure) }
    }
}
