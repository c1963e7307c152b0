import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// What errors say.
@Suite(.runLoop) struct ErrorTests {
    @Test func `an error has the response that had been received`() async throws {
        let folder = TemporaryFolder()
        let server = try TestServer.responding { _, _ in
            response("503 Busy", ["Retry-After: 7"], body: "later")
        }
        let outcome = try await onItsOwnThread {
            HTTPSession().run(HTTPRequest(server.url), to: .file(folder.path.appending("file")))
        }
        guard case .failure(let error) = outcome else { return #expect(outcome.kind != nil) }
        #expect(error.kind == .status(503))
        #expect(error.response?.fields["Retry-After"] == "7")
        #expect(try await onItsOwnThread { HTTPSession().run("nonsense") }.response == nil)
    }

    @Test func `an error of a file has its errno`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let outcomes = try await onItsOwnThread {
            let upload = HTTPRequest(server.url, method: "PUT", body: .file("/nonexistent/file"))
            let download = HTTPSession().run(HTTPRequest(server.url), to: .file("/nonexistent/file"))
            return [download, HTTPSession().run(upload)]
        }
        let errors: [Errno?] = outcomes.map { outcome in
            guard case .failure(let error) = outcome else { return nil }
            return error.errno
        }
        #expect(errors == [.noSuchFileOrDirectory, .noSuchFileOrDirectory])
    }

    /// `localhost` has two addresses. One of them refuses the connection, mostly IPv4's, which libcurl tries first.
    @Test(arguments: [SocketAddress.ipv6Loopback(port: 0), .ipv4Loopback(port: 0)])
    func `an error of a connection has no errno of an address that was tried before`(address: SocketAddress)
        async throws
    {
        guard let listener = try? SocketPeer(listeningAt: address) else { return }
        let url = "http://localhost:\(try listener.localAddress.port ?? 0)/"
        _ = try ReactorTestSupport.JoinableThread(name: "server") {
            guard let peer = try? listener.accept() else { return }
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nhello")
        }
        guard case .failure(let error) = try await onItsOwnThread({ HTTPSession().run(url) }) else {
            Issue.record("a body that was cut is whole")
            return
        }
        #expect(error.kind == .truncated)
        #expect(error.errno == nil)
    }

    @Test(arguments: ["POST", "PUT"])
    func `a stream with fewer bytes than announced is an error`(method: String) async throws {
        let server = try TestServer { peer, _ in peer.waitForEnd() }
        let outcome = try await onItsOwnThread {
            let body = HTTPRequest.Body.stream(InputStream(data: Array("hello".utf8)), length: 7)
            return HTTPSession().run(HTTPRequest(server.url, method: method, body: body))
        }
        #expect(outcome.kind == .bodyTooShort(count: 5, length: 7))
    }

    @Test(.enabled(if: Nginx.isAvailable), arguments: [false, true])
    func `a redirect from https to http is followed only if that is wanted`(isWanted: Bool) async throws {
        let server = try Nginx.shared.get()
        let outcome = try await onItsOwnThread {
            HTTPSession {
                $0.trustRoots = server.certificate
                $0.followsInsecureRedirects = isWanted
            }.run(server.secure + "/insecure")
        }
        if isWanted { #expect(outcome.body == "hello\n") } else { #expect(outcome.kind == .insecureRedirect) }
    }

    /// A location may begin with a vertical tab, which libcurl ignores.
    @Test(.enabled(if: Nginx.isAvailable), arguments: [false, true], ["/insecure", "/disguised"])
    func `so is one that follows a redirect from http to https`(isWanted: Bool, path: String) async throws {
        let server = try Nginx.shared.get()
        let first = try TestServer.responding { [secure = server.secure] _, _ in
            response("302 Found", ["Location: \(secure)\(path)"])
        }
        let outcome = try await onItsOwnThread {
            HTTPSession {
                $0.trustRoots = server.certificate
                $0.followsInsecureRedirects = isWanted
                $0.versions = .http1  // HTTP/2 does not allow the tab
            }.run(first.url)
        }
        if isWanted { #expect(outcome.body == "hello\n") } else { #expect(outcome.kind == .insecureRedirect) }
    }

    @Test func `resuming a transfer that is not suspended does not put off its idle time-out`() async throws {
        let server = try TestServer { peer, _ in peer.waitForEnd() }
        try await onItsOwnThread {
            let (loop, outcome) = (RunLoop.current, Shared<Outcome?>(nil))
            let session = HTTPSession {
                $0.idleTimeout = .milliseconds(300)
                $0.totalTimeout = .seconds(3)
            }
            let transfer = session.start(HTTPRequest(server.url)) {
                outcome.value = $0
                loop.stop()
            }
            let timer = Timer.scheduled(every: .milliseconds(50), forMode: .default) { _ in transfer.resume()
            }
            loop.run { outcome.value == nil }
            timer.invalidate()
            #expect(outcome.value?.kind == .timedOut(.idle))
        }
    }

    @Test func `progress says how much an earlier download had received`() async throws {
        let folder = TemporaryFolder()
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let server = try TestServer.responding { _, _ in
            response("206 Partial Content", ["Content-Range: bytes 5-10/11", "ETag: \"1\""], body: " world")
        }
        let last = Shared<HTTPTransfer.Progress?>(nil)
        try await onItsOwnThread {
            let file = HTTPDestination.file(folder.path.appending("file"), resumes: true)
            let outcome = HTTPSession().run(HTTPRequest(server.url), to: file) { last.value = $0 }
            #expect(outcome.kind == nil)
        }
        #expect(last.value?.bytesResumed == 5)
        #expect(last.value?.bytesReceived == 11)
    }

    @Test(arguments: [
        ("X-A", "b\u{1B}[31m"), ("X-A", "b\r\nX-C: d"), ("X-A", "b\0"), ("X-A", "\u{7F}"), ("X A", "b"),
    ])
    func `a field that cannot be sent is refused by its name, and its characters are not printed`(
        name: String, value: String
    ) async throws {
        let request = HTTPRequest("http://127.0.0.1:1/", fields: [name: value])
        guard case .failure(let error) = try await onItsOwnThread({ HTTPSession().run(request) }) else {
            Issue.record("the request was sent")
            return
        }
        #expect(error.kind == .invalidRequest)
        #expect(error.reason.contains("the header field '\(name)'"))
    }

    @Test func `control characters of a server are escaped in an error`() async throws {
        let server = try TestServer.responding { _, _ in response("302 Found", ["Location: a\u{1B}[2J://b"]) }
        let outcome = try await onItsOwnThread { HTTPSession().run(server.url) }
        guard case .failure(let error) = outcome else { return #expect(outcome.kind != nil) }
        #expect("\(error)".unicodeScalars.allSatisfy { $0.value >= 32 && $0.value != 127 })
        let malformed = try await onItsOwnThread { HTTPSession().run("http://a\nb/") }
        guard case .failure(let error) = malformed else { return #expect(malformed.kind != nil) }
        #expect("\(error)" == #"GET http://a\u{A}b/: request: the URL is malformed"#)
    }

    @Test func `a body of which one read decodes to too much is said to be too large`() async throws {
        let folder = TemporaryFolder()
        let zip = "head -c 200000000 /dev/zero | gzip | gzip > \(folder.path("bomb"))"
        _ = try Child("/bin/sh", ["-c", zip]).wait()
        let bomb = try #require(content(of: folder.path("bomb")))
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send(
                "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: \(bomb.count)\r\n\r\n")
            peer.send(bomb)
            peer.waitForEnd()
        }
        let outcome = try await onItsOwnThread {
            HTTPSession { $0.bytesInFlight = 65_536 }.run(HTTPRequest(server.url), to: .handler { _ in })
        }
        guard case .failure(let error) = outcome else { return #expect(outcome.kind != nil) }
        #expect(error.kind == .bodyTooLarge(limit: 64 << 20))
        #expect(error.reason == "the body has more than \(64 << 20) bytes")
    }

    @Test func `credentials for a proxy are sent to proxies only`() async {
        await #expect(processExitsWith: .success) {
            let server = try TestServer.responding { _, _ in response() }
            let proxy = try TestServer.responding { [url = server.url] _, _ in
                response("302 Found", ["Location: \(url)"])
            }
            setenv("http_proxy", proxy.url, 1)
            setenv("no_proxy", "127.0.0.1", 1)
            try await onItsOwnThread {
                let request = HTTPRequest(
                    "http://example.invalid/", fields: ["proxy-authorization": "secret"])
                precondition(HTTPSession().run(request).kind == nil)
            }
            precondition(proxy.requests.all.first?.contains("roxy-authorization: secret\r\n") == true)
            precondition(server.requests.all.first?.lowercased().contains("proxy") == false)
        }
    }
}

extension Outcome {
    fileprivate var response: HTTPResponse? {
        switch self {
        case .success(let response): response
        case .failure(let error): error.response
        }
    }
}
