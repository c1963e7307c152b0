import Dispatch
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct TransferTests {
    @Test func `a response is collected in memory`() async throws {
        let server = try TestServer.responding { _, _ in
            response("200 OK", ["X-Kind: a", "x-kind: b"], body: "hello")
        }
        let outcome = try await onItsOwnThread { HTTPSession().run(server.url + "/file") }
        let answer = try outcome.get()
        #expect(answer.status == 200)
        #expect(answer.body == Array("hello".utf8))
        #expect(answer.fields.values(for: "X-KIND") == ["a", "b"])
        #expect(answer.url == server.url + "/file")
        #expect(answer.version == .http11)
    }

    @Test func `a handler receives the head, then the body, then the completion`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let trace = Trace()
        try await onItsOwnThread {
            let session = HTTPSession()
            let handler = HTTPDestination.handler { event in
                switch event {
                case .response(let response): trace("head \(response.status)")
                case .bytes(let bytes): trace(String(decoding: bytes, as: UTF8.self))
                }
            }
            trace("\(try session.run(HTTPRequest(server.url), to: handler).get().status)")
        }
        #expect(trace.all == ["head 200", "hello", "200"])
    }

    @Test func `a connection is used again`() async throws {
        let connections = Shared(0)
        let server = try TestServer { peer, _ in
            connections.update { $0 += 1 }
            while peer.readHead() != nil { peer.send(response(body: "x")) }
        }
        try await onItsOwnThread {
            let session = HTTPSession()
            for _ in 0..<5 { #expect(session.run(server.url).body == "x") }
        }
        #expect(connections.value == 1)
    }

    @Test func `a thousand small files arrive over eight connections`() async throws {
        let (connections, bodies) = (Shared(0), Shared(Set<String>()))
        let server = try TestServer { peer, _ in
            connections.update { $0 += 1 }
            while let head = peer.readHead() {
                peer.send(response(body: String(head.split(separator: " ")[1])))
            }
        }
        try await onItsOwnThread {
            let session = HTTPSession { $0.maxConnectionsPerHost = 8 }
            let loop = RunLoop.current
            for number in 0..<1000 {
                session.start(HTTPRequest("\(server.url)/\(number)")) { outcome in
                    let isLast = bodies.update { bodies in
                        bodies.insert(outcome.body ?? "?")
                        return bodies.count == 1000
                    }
                    if isLast { loop.stop() }
                }
            }
            loop.run { bodies.value.count < 1000 }
        }
        #expect(bodies.value == Set((0..<1000).map { "/\($0)" }))
        #expect(connections.value <= 8)
    }

    @Test func `transfers that wait for a host do not stop those of another, and can be cancelled`()
        async throws
    {
        let (gate, counts) = (Answer<Bool>(), Shared((cancelled: 0, other: 0)))
        let stalled = try TestServer { peer, _ in _ = gate.wait() }
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        try await onItsOwnThread {
            let (session, loop) = (HTTPSession(), RunLoop.current)
            let transfers = (0..<500).map { _ in
                session.start(HTTPRequest(stalled.url)) { outcome in
                    counts.update {
                        if outcome.kind == .cancelled { $0.cancelled += 1 } else { $0.other += 1 }
                    }
                    loop.stop()
                }
            }
            #expect(session.run(server.url).body == "hello")
            #expect(counts.value == (0, 0))
            for transfer in transfers { transfer.cancel() }
            loop.run { counts.value.cancelled + counts.value.other < 500 }
            #expect(counts.value == (500, 0))
            #expect(session.run(server.url).body == "hello")
        }
        gate.give(true)
    }

    @Test func `the method, the fields and the body are sent`() async throws {
        let received = Trace()
        let server = try TestServer { peer, _ in
            received(peer.readHead() ?? "")
            received(String(decoding: peer.receive(5), as: UTF8.self))
            peer.send(response(body: "ok"))
        }
        try await onItsOwnThread {
            let request = HTTPRequest(
                server.url + "/items", method: "PATCH", fields: ["X-Name": "value"],
                body: .bytes(Array("hello".utf8)))
            #expect(HTTPSession().run(request).body == "ok")
        }
        #expect(received.all[0].hasPrefix("PATCH /items HTTP/1.1\r\n"))
        #expect(received.all[0].contains("X-Name: value\r\n"))
        #expect(received.all[1] == "hello")
    }

    @Test(arguments: [
        "gopher://host/", "http://", "file:///etc/passwd", "nonsense://", "127.0.0.1:1/", "localhost/",
        "http:/127.0.0.1:1/", "http:///127.0.0.1:1/", "http://127.0.0.1:1/a\0b", "http://127.0.0.1:1/a\nb",
        "",
    ])
    func `a URL that is not HTTP's is an error`(url: String) async throws {
        let outcome = try await onItsOwnThread { HTTPSession().run(url) }
        #expect(outcome.kind == .invalidURL)
    }

    @Test func `fields that would break the request are refused`() async throws {
        let request = HTTPRequest("http://127.0.0.1:1/", fields: ["X-A": "b\r\nX-C: d"])
        let outcome = try await onItsOwnThread { HTTPSession().run(request) }
        #expect(outcome.kind == .invalidRequest)
    }

    @Test(
        arguments: [
            ("PUT", ["Content-Length": "3"], .some(.some(5))),
            ("POST", ["content-length": "6"], .some(.some(5))),
            ("PUT", ["Content-Length": ""], .some(.some(5))),
            ("PUT", ["Content-Length": "05"], .some(.some(5))),
            ("PUT", ["Transfer-Encoding": "chunked"], .some(.some(5))),
            ("PUT", ["Content-Length": "5"], .some(nil)), ("POST", ["Transfer-Encoding": "gzip"], .some(nil)),
            ("GET", ["Content-Length": "5"], nil), ("POST", ["Transfer-Encoding": "chunked"], nil),
            ("HEAD", [:], .some(.some(5))),
        ] as [(String, HTTPFields, Int??)])
    func `a body that would be sent other than the fields or the method say is refused`(
        method: String, fields: HTTPFields, length: Int??
    ) async throws {
        let heads = Trace()
        let server = try TestServer { peer, _ in
            if let head = peer.readHead() { heads(head) }
        }
        let outcome = try await onItsOwnThread {
            let body = length.map { length in
                HTTPRequest.Body.stream(InputStream(data: Array("hello".utf8)), length: length)
            }
            return HTTPSession().run(HTTPRequest(server.url, method: method, fields: fields, body: body))
        }
        #expect(outcome.kind == .invalidRequest)
        #expect(heads.all.isEmpty)
    }

    @Test func `a length that is the body's is sent once, and not with the GET after a redirect`()
        async throws
    {
        let heads = Trace()
        let server = try TestServer { peer, _ in
            heads(peer.readHead() ?? "")
            _ = peer.receive(5)
            peer.send(response("303 See Other", ["Location: /"]))
            heads(peer.readHead() ?? "")
            peer.send(response(body: "ok"))
        }
        let outcome = try await onItsOwnThread {
            let request = HTTPRequest(
                server.url, method: "POST", fields: ["Content-Length": "5"], body: .bytes(Array("hello".utf8))
            )
            return HTTPSession().run(request)
        }
        #expect(outcome.body == "ok")
        #expect(heads.all.map { $0.ranges(of: "Content-Length").count } == [1, 0])
    }

    @Test(arguments: ["X-A: b\r\n", " b\r\n"])
    func `a head without an end is an error`(line: String) async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            let lines = String(repeating: line, count: 307_200 / line.utf8.count + 1)
            peer.send("HTTP/1.1 200 OK\r\nX-A: b\r\n\(lines)")
            peer.shutDown()
            peer.waitForEnd()
        }
        let outcome = try await onItsOwnThread { HTTPSession().run(server.url) }
        guard case .failure(let error) = outcome else { return #expect(outcome.kind != nil) }
        #expect(error.kind == .invalidResponse)
        #expect(error.reason == "the head has more than 307200 bytes")
    }

    /// libcurl tries `::1` first, at which the server does not listen.
    @Test func `an error after a connection was made does not have the errno of another address`()
        async throws
    {
        let server = try TestServer { peer, _ in _ = peer.readHead() }
        let url = server.url.replacing("127.0.0.1", with: "localhost")
        let outcome = try await onItsOwnThread { HTTPSession().run(url) }
        guard case .failure(let error) = outcome else { return #expect(outcome.kind != nil) }
        #expect(error.kind == .connectionLost)
        #expect(error.errno == nil)
    }

    @Test func `a user agent that would break the request is refused`() async throws {
        let outcome = try await onItsOwnThread {
            HTTPSession { $0.userAgent = "a\r\nX-B: c" }.run("http://127.0.0.1:1/")
        }
        #expect(outcome.kind == .invalidRequest)
    }

    @Test func `an error does not show a password`() async throws {
        let server = try TestServer { peer, _ in _ = peer.readHead() }
        let url = server.url.replacing("http://", with: "http://user:secret@") + "/a@b"
        let outcome = try await onItsOwnThread { HTTPSession().run(url) }
        guard case .failure(let error) = outcome else { return #expect(outcome.kind != nil) }
        #expect(error.subject == "GET \(server.url)/a@b")
        #expect(error.host == "127.0.0.1")
    }

    @Test func `the response of an error does not show a password`() async throws {
        let server = try TestServer.responding { _, _ in response("404 Not Found") }
        let url = server.url.replacing("http://", with: "http://user:secret@") + "/a"
        let folder = TemporaryFolder()
        let outcome = try await onItsOwnThread {
            HTTPSession().run(HTTPRequest(url), to: .file(folder.path.appending("file")))
        }
        guard case .failure(let error) = outcome else { return #expect(outcome.kind != nil) }
        #expect(error.response?.url == server.url + "/a")
    }

    @Test func `a refused connection is an error with its errno`() async throws {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let url = "http://127.0.0.1:\(try listener.localAddress.port ?? 0)/path"
        listener.close()
        let outcome = try await onItsOwnThread { HTTPSession().run(url) }
        guard case .failure(let error) = outcome else { return #expect(outcome.kind != nil) }
        #expect(error.kind == .connect)
        #expect(error.errno == .connectionRefused)
        #expect(error.host == "127.0.0.1")
        #expect("\(error)" == "GET \(url): connect: Connection refused")
    }

    @Test func `a body that is too large for memory is an error`() async throws {
        let server = try TestServer.responding { _, _ in response(body: String(repeating: "x", count: 1001)) }
        let outcome = try await onItsOwnThread {
            HTTPSession().run(HTTPRequest(server.url), to: .memory(limit: 1000))
        }
        #expect(outcome.kind == .bodyTooLarge(limit: 1000))
    }

    @Test func `a body that is cut is an error`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        }
        #expect(try await onItsOwnThread { HTTPSession().run(server.url) }.kind == .truncated)
    }

    @Test func `garbage instead of a response is an error`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("\u{1}\u{2}garbage\r\n\r\n")
        }
        #expect(try await onItsOwnThread { HTTPSession().run(server.url) }.kind == .invalidResponse)
    }

    @Test func `a connection that is closed without a response is an error`() async throws {
        let server = try TestServer { peer, _ in _ = peer.readHead() }
        #expect(try await onItsOwnThread { HTTPSession().run(server.url) }.kind == .connectionLost)
    }

    @Test func `a field may go on in further lines`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send(
                "HTTP/1.1 302 Found\r\nX-A: b\r\n  c\r\n\td\r\nLocation:\r\n /x\r\nContent-Length: 2\r\n\r\nok"
            )
        }
        let answer = try await onItsOwnThread { try HTTPSession().run(server.url).get() }
        #expect(answer.status == 302)
        #expect(answer.fields["X-A"] == "b c d")
        #expect(answer.body == Array("ok".utf8))
    }

    @Test func `bytes that are sent again after a redirect are counted once`() async throws {
        let server = try TestServer { peer, _ in
            while let head = peer.readHead() {
                _ = peer.receive(5)
                peer.send(head.contains(" /first ") ? response("307 Moved", ["Location: /"]) : response())
            }
        }
        try await onItsOwnThread {
            let (loop, isDone) = (RunLoop.current, Shared(false))
            let request = HTTPRequest(
                server.url + "/first", method: "PUT", body: .bytes(Array("hello".utf8)))
            let session = HTTPSession()
            let transfer = session.start(request) { outcome in
                #expect(outcome.kind == nil)
                isDone.value = true
                loop.stop()
            }
            loop.run { !isDone.value }
            #expect(transfer.progress.bytesSent == 5)
        }
    }

    @Test(arguments: [
        ("DELETE", "GET"), ("POST", "GET"), ("PUT", "GET"), ("GET", "GET"), ("HEAD", "HEAD"),
    ])
    func `after a 303 the method is GET, or stays HEAD`(method: String, second: String) async throws {
        let heads = Trace()
        let server = try TestServer { peer, _ in
            while let head = peer.readHead() {
                heads(String(head.prefix { $0 != " " }))
                if head.contains("Content-Length: 5") { _ = peer.receive(5) }
                if head.contains(" /first ") {
                    peer.send(response("303 See Other", ["Location: /"]))
                } else {
                    peer.send("HTTP/1.1 204 No Content\r\n\r\n")
                }
            }
        }
        try await onItsOwnThread {
            let hasBody = method == "POST" || method == "PUT"
            let body = hasBody ? HTTPRequest.Body.bytes(Array("hello".utf8)) : nil
            let request = HTTPRequest(server.url + "/first", method: method, body: body)
            let status = try HTTPSession().run(request).get().status
            #expect(status == 204)
        }
        #expect(heads.all == [method, second])
    }

    @Test func `a redirect is followed after an interim response`() async throws {
        let server = try TestServer.responding { head, _ in
            head.contains("/first")
                ? "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + response("302 Found", ["Location: /"])
                : response(body: "other")
        }
        #expect(try await onItsOwnThread { HTTPSession().run(server.url + "/first") }.body == "other")
    }

    @Test(arguments: [300, 304, 305, 306, 399])
    func `a status that is no redirect is a response, also with a location`(status: Int) async throws {
        let server = try TestServer.responding { head, _ in
            head.contains("/first") ? response("\(status) X", ["Location: /"]) : response(body: "other")
        }
        let trace = Trace()
        try await onItsOwnThread {
            let handler = HTTPDestination.handler { event in
                if case .response(let head) = event { trace("\(head.status)") }
            }
            let request = HTTPRequest(server.url + "/first")
            let received = try HTTPSession().run(request, to: handler).get().status
            #expect(received == status)
        }
        #expect(trace.all == ["\(status)"])
    }

    @Test func `callbacks are called on the queue, and the group waits for them`() async throws {
        let server = try TestServer.responding { _, _ in
            response(body: String(repeating: "x", count: 100_000))
        }
        let queue = DispatchQueue(label: "delegate")
        let key = DispatchSpecificKey<Bool>()
        queue.setSpecific(key: key, value: true)
        let (count, wrong) = (Shared(0), Shared(0))
        let thread = try RunLoopThread(name: "network")
        let session = HTTPSession(on: thread.runLoop)
        let group = DispatchGroup()
        @Sendable func note(_ bytes: Int) {
            if DispatchQueue.getSpecific(key: key) != true { wrong.update { $0 += 1 } }
            count.update { $0 += bytes }
        }
        let handler = HTTPDestination.handler { event in
            if case .bytes(let bytes) = event { note(bytes.count) }
        }
        for _ in 0..<4 {
            session.start(HTTPRequest(server.url), to: handler, delivery: .queue(queue), group: group) { _ in
                note(1)
            }
        }
        try await onItsOwnThread { group.wait() }
        #expect(count.value == 400_004)
        #expect(wrong.value == 0)
        try await onItsOwnThread { thread.stop() }
    }
}
