import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// What errors have, and what they do not show.
@Suite(.runLoop) struct ErrorTests {
    @Test func `an error has the response that was received, and neither shows a password`() throws {
        let folder = TemporaryFolder()
        let server = try TestServer.responding { _, _ in response("503 Busy", ["Retry-After: 7"]) }
        let url = server.url.replacing("http://", with: "http://user:secret@") + "/a@b"
        let outcome = HTTPSession().run(HTTPRequest(url), to: .file(folder.path.appending("file")))
        let error = try #require(outcome.error)
        #expect(error.kind == .status(503))
        #expect(error.response?.headerFields[.retryAfter] == "7")
        #expect(error.response?.url == server.url + "/a@b")
        #expect(error.subject == "GET \(server.url)/a@b")
        #expect(HTTPSession().run("nonsense").error?.response == nil)
    }

    @Test func `an error of a file has the file's name and its errno`() throws {
        let (server, path) = (try TestServer.sized(5), FilePath("/nonexistent/file"))
        let download = HTTPSession().run(HTTPRequest(server.url), to: .file(path)).error
        #expect(download?.kind == .write(IOError(.open, "/nonexistent/file.part", .noSuchFileOrDirectory)))
        #expect(download?.errno == .noSuchFileOrDirectory)
        let upload = HTTPSession().run(HTTPRequest(server.url, method: .put), body: .file(path)).error
        #expect(upload?.kind == .read(IOError(.open, "/nonexistent/file", .noSuchFileOrDirectory)))
        #expect(upload?.errno == .noSuchFileOrDirectory)
    }

    @Test func `a refused connection is an error with its errno`() throws {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let url = "http://127.0.0.1:\(try listener.localAddress.port ?? 0)/path"
        listener.close()
        let error = try #require(HTTPSession().run(url).error)
        #expect(error.kind == .connect && error.errno == .connectionRefused)
        #expect("\(error)".contains(url))
    }

    /// `localhost` has two addresses. One of them refuses the connection, mostly IPv4's, which libcurl tries first.
    @Test(arguments: [SocketAddress.ipv6Loopback(port: 0), .ipv4Loopback(port: 0)])
    func `a connection's error has no errno of an address that was tried before`(address: SocketAddress)
        throws
    {
        guard let listener = try? SocketPeer(listeningAt: address) else { return }
        let url = "http://localhost:\(try listener.localAddress.port ?? 0)/"
        let server = try JoinableThread(name: "server") {
            defer { listener.close() }
            guard let peer = try? listener.accept(), peer.readHead() != nil else { return }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nhello")
        }
        let error = HTTPSession().run(url).error
        #expect(error?.kind == .truncated && error?.errno == nil)
        server.join()
    }

    @Test(arguments: [HTTPRequest.Method.post, .put])
    func `a stream with fewer bytes than announced is an error`(method: HTTPRequest.Method) throws {
        let server = try TestServer { peer, _ in peer.waitForEnd() }
        let body = HTTPSource.stream(InputStream(data: Array("hello".utf8)), length: 7)
        let outcome = HTTPSession().run(HTTPRequest(server.url, method: method), body: body)
        #expect(outcome.kind == .bodyTooShort(count: 5, length: 7))
    }

    @Test(arguments: ["b\u{1B}[31m", "\u{7F}", "a\u{8}b"])
    func `a field that cannot be sent is refused by its name, and not printed`(value: String) throws {
        let name = try #require(HTTPField.Name("X-A"))
        let field = HTTPField(name: name, lenientValue: Array(value.utf8))
        let request = HTTPRequest("http://127.0.0.1:1/", headerFields: HTTPFields([field]))
        let error = try #require(HTTPSession().run(request).error)
        #expect(error.kind == .invalidRequest)
        #expect(error.reason.contains("'X-A'") && Self.isPrintable(error))
    }

    @Test(arguments: ["b\r\nX-C: d", "b\0", "\u{7F}", "\n"])
    func `a user agent with a control character is refused`(value: String) {
        #expect(HTTPSession { $0.userAgent = value }.run("http://127.0.0.1:1/").kind == .invalidRequest)
    }

    private static func isPrintable(_ error: HTTPError) -> Bool {
        "\(error)".unicodeScalars.allSatisfy { $0.value >= 32 && $0.value != 127 }
    }

    @Test func `control characters of a server, or in a URL, are escaped in an error`() throws {
        let server = try TestServer.responding { _, _ in response("302 Found", ["Location: a\u{1B}[2J://b"]) }
        #expect(Self.isPrintable(try #require(HTTPSession().run(server.url).error)))
        let malformed = try #require(HTTPSession().run("http://a\nb/").error)
        #expect(Self.isPrintable(malformed) && "\(malformed)".contains("http://a b/"))
    }

    @Test func `credentials are not shown`() throws {
        let server = try TestServer.responding { _, _ in response("200 OK", ["Set-Cookie: secret"]) }
        let launch = HTTPSession().launch(server.url.replacing("//", with: "//me:secret@"))
        let answer = try launch.wait().get()
        var dumped = ""
        dump(answer, to: &dumped)
        for text in ["\([answer])", dumped, launch.transfer.explain()] {
            #expect(!text.contains("secret"))
        }
        #expect(dumped.contains("Content-Length") && dumped.contains("(not shown)"))
    }

    @Test(.enabled(if: Nginx.isAvailable), arguments: ["/insecure", "/disguised"], [false, true])
    func `a redirect from https to http is followed only if wanted`(path: String, isWanted: Bool) throws {
        let server = try Nginx.shared.get()
        let url = server.secure + path
        let first = try TestServer.responding { _, _ in response("302 Found", ["Location: \(url)"]) }
        let session = HTTPSession {
            $0.trustRoots = server.certificate
            $0.followsInsecureRedirects = isWanted
            // HTTP/2 does not allow the vertical tab that disguises a location, which libcurl ignores.
            $0.versions = .http1
        }
        for start in [url, first.url] {
            let outcome = session.run(start)
            #expect(outcome.kind == (isWanted ? nil : .insecureRedirect))
            #expect(outcome.body == (isWanted ? "hello\n" : nil))
        }
    }

    @Test func `credentials for a proxy go to it only, and its refusal is an error of the connection`() async
    {
        await #expect(processExitsWith: .success) {
            let server = try TestServer.responding { _, _ in response() }
            let proxy = try TestServer.responding { [url = server.url] head, _ in
                head.hasPrefix("CONNECT")
                    ? response("403 Forbidden") : response("302 Found", ["Location: \(url)"])
            }
            setenv("http_proxy", proxy.url, 1)
            setenv("https_proxy", proxy.url, 1)
            setenv("no_proxy", "127.0.0.1", 1)
            let request = HTTPRequest(
                "http://example.invalid/", headerFields: [.proxyAuthorization: "secret"])
            precondition(HTTPSession().run(request).kind == nil)
            precondition(proxy.requests.all.first?.contains("Proxy-Authorization: secret\r\n") == true)
            precondition(server.requests.all.first?.lowercased().contains("proxy") == false)
            let error = HTTPSession().run("https://example.invalid/").error
            precondition(error?.kind == .connect && error?.errno == nil)
            precondition(proxy.requests.all.count == 2)
        }
    }
}
