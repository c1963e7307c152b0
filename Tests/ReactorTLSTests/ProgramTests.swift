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
        let (input, output) = Stream.connection(toHost: "localhost", port: port)
        try input.startTLS(settings)
        for stream in [input, output] as [Stream] { stream.open() }
        output.writeAll(Array(text.utf8) + body)
        let answer = input.readToEnd()
        #expect(input.streamStatus == .atEnd, "\(input.streamError.map { "\($0)" } ?? "")")
        let session = try #require(input.tlsSession)
        #expect(session.applicationProtocol == "http/1.1")
        for stream in [input, output] as [Stream] { stream.close() }
        return (answer, session.isResumed)
    }

    @Test(
        .enabled(if: Nginx.isAvailable, "nginx and openssl are installed or unpacked"),
        arguments: [TLSSettings.Version.tls12, .tls13])
    func `nginx sends and takes a file, and resumes the session`(version: TLSSettings.Version) throws {
        let server = try Nginx.shared.get()
        var settings = TLSSettings.client()
        settings.trust = .file(server.certificate.string)
        settings.maximumVersion = version
        settings.applicationProtocols = ["http/1.1"]
        let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        let first = try Self.request("GET /bytes.bin \(head)\r\n", [], settings)
        #expect(first.answer.suffix(Nginx.bytes.count).elementsEqual(Nginx.bytes))
        #expect(!first.isResumed)
        let name = "upload/tls-\(version)"
        let length = "Content-Length: \(Nginx.bytes.count)\r\n"
        let second = try Self.request("PUT /\(name) \(head)\(length)\r\n", Nginx.bytes, settings)
        #expect(second.answer.starts(with: Array("HTTP/1.1 201".utf8)))
        #expect(content(of: server.folder.string + "/" + name) == Nginx.bytes)
        #expect(second.isResumed)
    }

    @Test(
        .enabled(if: access("/usr/bin/curl", X_OK) == 0, "curl is installed"),
        arguments: [["--tls-max", "1.2"], ["--tlsv1.3"], ["--tlsv1.3", "--http2"]])
    func `curl verifies a listener, and gets what it sends`(options: [String]) throws {
        let settings = try TLSSettings.testServer { $0.applicationProtocols = ["http/1.1"] }
        var isServed = false
        let listener = try Listener(.ipv4Loopback(port: 0), tls: settings) { _, connection in
            for stream in [connection.input, connection.output] as [Stream] { stream.open() }
            var head: [UInt8] = []
            while !head.suffix(4).elementsEqual([13, 10, 13, 10]),
                case let byte = connection.input.read(exactly: 1), !byte.isEmpty
            {
                head += byte
            }
            let body = pattern(1_000_000)
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\r\n"
            connection.output.writeAll(Array(answer.utf8) + body)
            #expect(connection.input.tlsSession?.applicationProtocol == "http/1.1")
            for stream in [connection.input, connection.output] as [Stream] { stream.close() }
            isServed = true
        } faults: {
            Issue.record($1)
        }
        try RunLoop.current.add(listener, forMode: .default)
        let folder = TemporaryFolder()
        let authority = try folder.file(TestCertificates.authority.certificateText, name: "a.pem").string
        let port = try #require(listener.localAddress.port)
        let curl = try Child(
            "/usr/bin/curl",
            ["-sS", "--cacert", authority, "-o", folder.path("body"), "https://localhost:\(port)/"]
                + options)
        RunLoop.current.serve { isServed }
        #expect(curl.wait() == .exit(0), "\(curl.readErrors())")
        #expect(content(of: folder.path("body")) == pattern(1_000_000))
        listener.close()
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
        let (input, output) = Stream.connection(toHost: host, port: port)
        input.proxy = proxy
        if isSecure { try input.startTLS(.testClient(nil)) }
        for stream in [input, output] as [Stream] { stream.open() }
        defer { for stream in [input, output] as [Stream] { stream.close() } }
        let server = TLSPair.end(try listening.acceptNumber())
        if isSecure { try server.output.startTLS(.testServer()) }
        for stream in server.streams { stream.open() }
        defer { server.close() }
        // The server speaks first, so that its bytes follow the proxy's reply.
        for (from, to) in [(server.output, input), (output, server.input)] {
            let sending = try JoinableThread { [from = Carrier(from)] in from.value.writeAll(pattern(300_000))
            }
            #expect(to.read(exactly: 300_000) == pattern(300_000))
            sending.join()
        }
        #expect(input.peerAddress?.port == proxy.port)
    }

    /// Why a connection through `proxy` to a port that refuses fails.
    private static func failure(
        through proxy: StreamProxy, to host: String = "127.0.0.1", port: UInt16? = nil
    ) throws -> StreamProxyError.Reason? {
        let refusing = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress.port
        let (input, output) = Stream.connection(toHost: host, port: try #require(port ?? refusing))
        input.proxy = proxy
        for stream in [input, output] as [Stream] { stream.open() }
        waitUntil { input.streamStatus != .opening }
        defer { for stream in [input, output] as [Stream] { stream.close() } }
        return (input.streamError as? StreamProxyError)?.reason
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

    @Test(.enabled(if: ServerProgram.isAvailable("danted"), "dante-server is installed or unpacked"))
    func `dante connects by SOCKS 4 and 5`() throws {
        let folder = TemporaryFolder()
        let server = try ServerProgram("danted") { port in
            let text = """
                logoutput: \(folder.path("log"))
                internal: 127.0.0.1 port = \(port)
                external: 127.0.0.1
                clientmethod: none
                socksmethod: none
                client pass { from: 127.0.0.0/8 to: 0.0.0.0/0 }
                socks block { from: 0.0.0.0/0 to: 0.0.0.0/0 port = 1 }
                socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 }

                """
            return ["-f", try folder.file(text.utf8, name: "configuration").string]
        }
        for kind in [Kind.socks4, .socks5] {
            let proxy = StreamProxy(kind, host: "127.0.0.1", port: server.port)
            // It rejects the names of 4a.
            if kind == .socks5 { try Self.connect(through: proxy) }
            for isSecure in [true, false] {
                try Self.connect(through: proxy, isSecure: isSecure, to: "127.0.0.1")
            }
            #expect(try Self.failure(through: proxy) == (kind == .socks4 ? .rejected : .connectionRefused))
            #expect(try Self.failure(through: proxy, port: 1) == (kind == .socks4 ? .rejected : .notAllowed))
        }
    }
}
