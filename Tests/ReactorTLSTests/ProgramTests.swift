import Glibc
import Reactor
import ReactorTLS
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// The library's TLS with nginx and curl at the other end.
@Suite(.runLoop) struct ProgramTests {
    private static func request(
        _ text: String, _ body: [UInt8], _ settings: TLSSettings
    ) throws -> (answer: [UInt8], isResumed: Bool) {
        let server = try Nginx.shared.get()
        let port = try #require(server.secure.split(separator: ":").last.flatMap { UInt16($0) })
        let client = TLSEnd(Stream.connection(toHost: "localhost", port: port))
        try client.input.startTLS(settings)
        client.open()
        client.output.write(Array(text.utf8) + body)
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
        settings.trust = .file(server.certificate.string)
        settings.maximumVersion = version
        settings.applicationProtocols = ["http/1.1"]
        let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        let first = try Self.request("GET /bytes.bin \(head)\r\n", [], settings)
        #expect(Array(first.answer.suffix(Nginx.bytes.count)) == Nginx.bytes)
        #expect(!first.isResumed)
        let name = "upload/tls-\(version)"
        let length = "Content-Length: \(Nginx.bytes.count)\r\n"
        let second = try Self.request("PUT /\(name) \(head)\(length)\r\n", Nginx.bytes, settings)
        #expect(second.answer.starts(with: Array("HTTP/1.1 201".utf8)))
        #expect(content(of: server.folder.string + "/" + name) == Nginx.bytes)
        #expect(second.isResumed)
    }
}

/// Connections through proxies of Debian, to a server of the test, with TLS and without.
@Suite(.runLoop) struct ProxyProgramTests {
    private typealias Kind = StreamProxy.Kind

    /// Sends bytes in both directions through `proxy`.
    private static func connect(
        through proxy: StreamProxy, isSecure: Bool = true, to host: String = "localhost"
    ) throws {
        let listening =
            try (try? SocketPeer(listeningAt: .ipv6Any(port: 0)))
            ?? SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let port = try #require(try listening.localAddress.port)
        let client = TLSEnd(Stream.connection(toHost: host, port: port))
        client.input.proxy = proxy
        if isSecure { try client.input.startTLS(.testClient(nil)) }
        client.open()
        defer { client.close() }
        let server = try TLSEnd(listening.acceptNumber())
        if isSecure { try server.output.startTLS(.testServer()) }
        server.open()
        defer { server.close() }
        // The server speaks first, so that its bytes follow the proxy's reply.
        for (from, to) in [(server.output, client.input), (client.output, server.input)] {
            let sending = try JoinableThread { [from = Carrier(from)] in from.value.write(pattern(300_000)) }
            #expect(to.read(exactly: 300_000) == pattern(300_000))
            sending.join()
        }
        #expect(client.input.peerAddress?.port == proxy.port)
    }

    /// Why a connection through `proxy` to a port that refuses fails.
    private static func failure(
        through proxy: StreamProxy, to host: String = "127.0.0.1", port: UInt16? = nil
    ) throws -> StreamProxyError.Reason? {
        let refusing = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress.port
        let client = TLSEnd(Stream.connection(toHost: host, port: try #require(port ?? refusing)))
        client.input.proxy = proxy
        client.open()
        defer { client.close() }
        return (client.settle().input.streamError as? StreamProxyError)?.reason
    }

    @Test(.enabled(if: ServerProgram.isAvailable("microsocks"), "microsocks is installed or unpacked"))
    func `microsocks connects with and without a password`() throws {
        let open = try ServerProgram("microsocks") { ["-i", "127.0.0.1", "-p", "\($0)"] }
        let free = StreamProxy(.socks5, host: "127.0.0.1", port: open.port)
        for isSecure in [true, false] {
            for host in ["localhost", "127.0.0.1"] {
                try Self.connect(through: free, isSecure: isSecure, to: host)
            }
        }
        #expect(try Self.failure(through: free) == .connectionRefused)
        let closed = try ServerProgram("microsocks") {
            ["-i", "127.0.0.1", "-p", "\($0)", "-u", "me", "-P", "secret"]
        }
        var proxy = StreamProxy(.socks5, host: "localhost", port: closed.port, user: "me", password: "secret")
        try Self.connect(through: proxy)
        proxy.password = "wrong"
        #expect(try Self.failure(through: proxy) == .authenticationFailed)
        (proxy.user, proxy.password) = (nil, nil)
        #expect(try Self.failure(through: proxy) == .authenticationRequired)
    }

    @Test(.enabled(if: ServerProgram.isAvailable("tinyproxy"), "tinyproxy is installed or unpacked"))
    func `tinyproxy connects with and without a password`() throws {
        func start(_ lines: String...) throws -> ServerProgram {
            let folder = TemporaryFolder()
            return try ServerProgram("tinyproxy") { port in
                let text = ["Port \(port)", "Listen 127.0.0.1", "MaxClients 50", "LogLevel Critical"] + lines
                return ["-d", "-c", try folder.file(text.map { $0 + "\n" }.joined().utf8).string]
            }
        }
        let open = try start()
        let free = StreamProxy(.http, host: "127.0.0.1", port: open.port)
        for isSecure in [true, false] { try Self.connect(through: free, isSecure: isSecure) }
        guard case .status(500..., _) = try Self.failure(through: free) else {
            Issue.record("a refused connection has another reason")
            return
        }
        let closed = try start("BasicAuth me secret", "ConnectPort 443")
        var proxy = StreamProxy(.http, host: "127.0.0.1", port: closed.port, user: "me", password: "wrong")
        #expect(try Self.failure(through: proxy) == .authenticationFailed)
        proxy.user = nil
        #expect(try Self.failure(through: proxy) == .authenticationRequired)
        (proxy.user, proxy.password) = ("me", "secret")
        guard case .status(403, _) = try Self.failure(through: proxy) else {
            Issue.record("a port that is forbidden has another reason")
            return
        }
    }
}
