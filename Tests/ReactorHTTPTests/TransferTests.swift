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
        #expect(answer.headerFields[values: HTTPField.Name("X-KIND")!] == ["a", "b"])
        #expect(answer.url == server.url + "/file")
        let handler = HTTPDestination.handler { event in
            switch event {
            case .response(let response): trace("head \(response.status.code)")
            case .bytes(let bytes): trace(String(decoding: bytes, as: UTF8.self))
            }
        }
        trace("\(try session.run(HTTPRequest(server.url), to: handler).get().status.code)")
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
            (.put, [.contentLength: "3"], .some(.some(5))), (.post, [.contentLength: "6"], .some(.some(5))),
            (.put, [.contentLength: ""], .some(.some(5))), (.put, [.contentLength: "05"], .some(.some(5))),
            (.put, [.transferEncoding: "chunked"], .some(.some(5))),
            (.put, [.contentLength: "5"], .some(nil)), (.post, [.transferEncoding: "gzip"], .some(nil)),
            (.get, [.contentLength: "5"], nil), (.post, [.transferEncoding: "chunked"], nil),
            (.head, [:], .some(.some(5))),
        ] as [(HTTPRequest.Method, HTTPFields, Int??)])
    func `a body that its request contradicts is refused`(
        method: HTTPRequest.Method, fields: HTTPFields, length: Int??
    ) throws {
        let server = try TestServer.sending("")
        let body = length.map { length in
            HTTPSource.stream(InputStream(data: Array("hello".utf8)), length: length)
        }
        let request = HTTPRequest(server.url, method: method, headerFields: fields)
        #expect(HTTPSession().run(request, body: body).kind == .invalidRequest)
        #expect(server.requests.all.isEmpty)
    }

    @Test(
        arguments: [
            (.delete, .get), (.post, .get), (.put, .get), (.get, .get), (.head, .head),
        ] as [(HTTPRequest.Method, HTTPRequest.Method)])
    func `after a 303 the method is GET or HEAD, without a body`(
        method: HTTPRequest.Method, second: HTTPRequest.Method
    ) throws {
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
        let hasBody = method == .post || method == .put
        let request = HTTPRequest(
            server.url + "/first", method: method, headerFields: hasBody ? [.contentLength: "5"] : [:])
        let body = hasBody ? HTTPSource.bytes(Array("hello".utf8)) : nil
        #expect(try HTTPSession().run(request, body: body).get().status == 204)
        #expect(heads.all == ["\(method) \(hasBody ? 1 : 0)", "\(second) 0"])
    }

    @Test(arguments: [301, 302, 307, 308], [HTTPRequest.Method.post, .put])
    func `a redirect makes a POST request a GET only with the statuses 301 and 302`(
        status: Int, method: HTTPRequest.Method
    ) throws {
        let requests = Trace()
        let server = try TestServer { peer, _ in
            while let head = peer.readHead() {
                let body = head.contains("Content-Length: 5") ? peer.receive(5) : []
                requests("\(head.prefix { $0 != " " }) \(String(decoding: body, as: UTF8.self))")
                peer.send(head.contains(" /first ") ? response("\(status) X", ["Location: /"]) : response())
            }
        }
        let request = HTTPRequest(server.url + "/first", method: method)
        #expect(HTTPSession().run(request, body: .bytes(Array("hello".utf8))).kind == nil)
        let becomesGet = method == .post && status < 303
        #expect(requests.all == ["\(method) hello", becomesGet ? "GET " : "\(method) hello"])
    }

    @Test(arguments: [true, false])
    func `credentials and cookies follow a redirect on the same server, and to no other port`(
        inURL: Bool
    ) throws {
        let other = try TestServer.responding { _, _ in response() }
        let server = try TestServer.responding { [url = other.url] head, _ in
            response("302 Found", ["Location: \(head.contains(" /first ") ? "/second" : url)"])
        }
        let url = server.url + "/first"
        var request = HTTPRequest(inURL ? url.replacing("//", with: "//me:secret@") : url)
        if !inURL { request.headerFields[.authorization] = "Bearer secret" }
        (request.headerFields[.cookie], request.headerFields[.accept]) = ("a=b", "text/plain")
        #expect(HTTPSession().run(request).kind == nil)
        let (own, others) = (server.requests.all, other.requests.all)
        #expect(own.count == 2 && others.count == 1)
        for field in ["Authorization: ", "Cookie: a=b\r\n"] {
            #expect(own.allSatisfy { $0.contains(field) } && !others[0].contains(field))
        }
        #expect((own + others).allSatisfy { $0.contains("Accept: text/plain\r\n") })
    }

    @Test func `a request names the user agent of its session, or none`() throws {
        let server = try TestServer.responding { _, _ in response() }
        let agents: [String?] = ["swift-reactor", "other", nil]
        #expect(HTTPSession.Configuration().userAgent == agents[0])
        for agent in agents { #expect(HTTPSession { $0.userAgent = agent }.run(server.url).kind == nil) }
        #expect(server.requests.all.count == agents.count)
        for (head, agent) in zip(server.requests.all, agents) {
            let field = agent.map { "User-Agent: \($0)\r\n" }
            #expect(field.map { head.contains($0) } ?? !head.contains("User-Agent"))
        }
    }

    @Test(arguments: ["length", "chunks", "close"])
    func `the length of a body is known if the server has announced it`(kind: String) throws {
        let head = "HTTP/1.1 200 OK\r\n"
        let server = try TestServer.sending { _, _ in
            switch kind {
            case "length": head + "Content-Length: 3\r\n\r\nabc"
            case "chunks": head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
            default: head + "Connection: close\r\n\r\nabc"
            }
        }
        let launch = HTTPSession().launch(server.url)
        let response = try launch.wait().get()
        #expect(response.body == Array("abc".utf8))
        #expect(response.contentLength == (kind == "length" ? 3 : nil))
        #expect(launch.transfer.progress.bytesExpected == (kind == "length" ? 3 : nil))
        #expect(launch.transfer.progress.bytesReceived == 3)
    }

    @Test func `bytes that are sent again after a redirect are counted once`() throws {
        let server = try TestServer { peer, _ in
            while let head = peer.readHead() {
                _ = peer.receive(5)
                peer.send(head.contains(" /first ") ? response("307 Moved", ["Location: /"]) : response())
            }
        }
        let request = HTTPRequest(server.url + "/first", method: .put)
        let launch = HTTPSession().launch(request, body: .bytes(Array("hello".utf8)))
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
            if case .response(let head) = event { trace("\(head.status.code)") }
        }
        let outcome = HTTPSession().run(HTTPRequest(server.url + "/first"), to: handler)
        #expect(try outcome.get().status.code == status)
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
                    HTTPRequest(server.url, method: .put), body: .bytes(body), to: .handler { _ in note() },
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
