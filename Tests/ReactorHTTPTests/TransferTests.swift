import Dispatch
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct TransferTests {
    @Test func `a response is collected in memory, or delivered to a handler in order`() throws {
        let server = try TestServer.responding { _, _ in
            response("200 OK", ["X-Kind: a", "x-kind: b"], body: "hello")
        }
        let (session, trace) = (HTTPSession(), Trace())
        let answer = try session.run(server.url + "/file").get()
        #expect(answer.status == 200 && answer.version == .http11)
        #expect(answer.body == Array("hello".utf8))
        #expect(answer.fields.values(for: "X-KIND") == ["a", "b"])
        #expect(answer.url == server.url + "/file")
        let handler = HTTPDestination.handler { event in
            switch event {
            case .response(let response): trace("head \(response.status)")
            case .bytes(let bytes): trace(String(decoding: bytes, as: UTF8.self))
            }
        }
        trace("\(try session.run(HTTPRequest(server.url), to: handler).get().status)")
        #expect(trace.all == ["head 200", "hello", "200"])
    }

    @Test func `hundreds of small files arrive over eight connections`() throws {
        let (connections, bodies) = (Shared(0), Shared(Set<String>()))
        let server = try TestServer { peer, _ in
            connections.update { $0 += 1 }
            while let head = peer.readHead() {
                peer.send(response(body: String(head.split(separator: " ")[1])))
            }
        }
        let (session, loop) = (HTTPSession { $0.maxConnectionsPerHost = 8 }, RunLoop.current)
        for number in 0..<400 {
            session.start(HTTPRequest("\(server.url)/\(number)")) { outcome in
                bodies.update { _ = $0.insert(outcome.body ?? "?") }
                if bodies.value.count == 400 { loop.stop() }
            }
        }
        loop.run { bodies.value.count < 400 }
        #expect(bodies.value == Set((0..<400).map { "/\($0)" }))
        #expect(connections.value <= 8)
    }

    @Test func `transfers that wait for a host do not stop those of another, and can be cancelled`() throws {
        let stalled = try TestServer { peer, _ in peer.waitForEnd() }
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let session = HTTPSession()
        let waiting = (0..<500).map { _ in session.launch(stalled.url) }
        #expect(session.run(server.url).body == "hello")
        for each in waiting { each.transfer.cancel() }
        for each in waiting { #expect(each.wait().kind == .cancelled) }
        #expect(session.run(server.url).body == "hello")
    }

    @Test func `fields are found in any case and keep their order`() {
        var fields: HTTPFields = ["Accept": "a", "X": "1"]
        fields.append("ACCEPT", "b")
        #expect(fields.values(for: "accept") == ["a", "b"])
        fields["x"] = nil
        fields["accept"] = "c"
        #expect(fields.fields.map(\.name) == ["accept"])
    }

    @Test(arguments: [
        "gopher://host/", "http://", "file:///etc/passwd", "nonsense://", "127.0.0.1:1/", "localhost/",
        "http:/127.0.0.1:1/", "http:///127.0.0.1:1/", "http://127.0.0.1:1/a\0b", "http://127.0.0.1:1/a\nb",
        "",
    ])
    func `a URL that is not HTTP's is an error`(url: String) {
        #expect(HTTPSession().run(url).kind == .invalidURL)
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
    func `a body that its request contradicts is refused`(
        method: String, fields: HTTPFields, length: Int??
    ) throws {
        let server = try TestServer.sending("")
        let body = length.map { length in
            HTTPRequest.Body.stream(InputStream(data: Array("hello".utf8)), length: length)
        }
        let request = HTTPRequest(server.url, method: method, fields: fields, body: body)
        #expect(HTTPSession().run(request).kind == .invalidRequest)
        #expect(server.requests.all.isEmpty)
    }

    @Test(arguments: [
        ("DELETE", "GET"), ("POST", "GET"), ("PUT", "GET"), ("GET", "GET"), ("HEAD", "HEAD"),
    ])
    func `after a 303 the method is GET or HEAD, without a body`(method: String, second: String) throws {
        let heads = Trace()
        let server = try TestServer { peer, _ in
            while let head = peer.readHead() {
                heads("\(head.prefix { $0 != " " }) \(head.ranges(of: "Content-Length").count)")
                if head.contains("Content-Length: 5") { _ = peer.receive(5) }
                peer.send(
                    head.contains(" /first ")
                        ? response("303 See Other", ["Location: /"]) : "HTTP/1.1 204 No Content\r\n\r\n")
            }
        }
        let hasBody = method == "POST" || method == "PUT"
        let request = HTTPRequest(
            server.url + "/first", method: method, fields: hasBody ? ["Content-Length": "5"] : [:],
            body: hasBody ? .bytes(Array("hello".utf8)) : nil)
        #expect(try HTTPSession().run(request).get().status == 204)
        #expect(heads.all == ["\(method) \(hasBody ? 1 : 0)", "\(second) 0"])
    }

    @Test func `bytes that are sent again after a redirect are counted once`() throws {
        let server = try TestServer { peer, _ in
            while let head = peer.readHead() {
                _ = peer.receive(5)
                peer.send(head.contains(" /first ") ? response("307 Moved", ["Location: /"]) : response())
            }
        }
        let request = HTTPRequest(server.url + "/first", method: "PUT", body: .bytes(Array("hello".utf8)))
        let launch = HTTPSession().launch(request)
        #expect(launch.wait().kind == nil)
        #expect(launch.transfer.progress.bytesSent == 5)
    }

    @Test func `a redirect is followed after an interim response`() throws {
        let server = try TestServer.responding { head, _ in
            head.contains("/first")
                ? "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + response("302 Found", ["Location: /"])
                : response(body: "other")
        }
        #expect(HTTPSession().run(server.url + "/first").body == "other")
    }

    @Test(arguments: [300, 304, 305, 306, 399, 404, 500])
    func `a status that is no redirect is a response, also with a location`(status: Int) throws {
        let server = try TestServer.responding { head, _ in
            head.contains("/first") ? response("\(status) X", ["Location: /"]) : response(body: "other")
        }
        let trace = Trace()
        let handler = HTTPDestination.handler { event in
            if case .response(let head) = event { trace("\(head.status)") }
        }
        let outcome = HTTPSession().run(HTTPRequest(server.url + "/first"), to: handler)
        #expect(try outcome.get().status == status)
        #expect(trace.all == ["\(status)"])
    }

    @Test func `callbacks are called on another loop, and outside libcurl once it has ended`() throws {
        let server = try TestServer { peer, _ in
            while peer.readHead() != nil {
                _ = peer.receive(300_000)
                peer.send(response(body: "hello"))
            }
        }
        let (client, wrong) = (try RunLoopThread(name: "client"), Shared(0))
        try withNetwork { session in
            for isRunning in [true, false] {
                @Sendable func note() {
                    let isRight = isRunning ? client.runLoop.isCurrent : !session.runLoop.isCurrent
                    if !isRight { wrong.update { $0 += 1 } }
                }
                let (body, outcome) = ([UInt8](repeating: 97, count: 300_000), Answer<Outcome>())
                session.start(
                    HTTPRequest(server.url, method: "PUT", body: .bytes(body)), to: .handler { _ in note() },
                    delivery: .runLoop(client.runLoop), progress: { _ in note() }
                ) { result in
                    note()
                    outcome.give(result)
                }
                #expect(outcome.wait().kind == nil)
                client.stop()
            }
        }
        #expect(wrong.value == 0)
    }
}
