import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Responses that do not conform, or that misuse what HTTP allows.
@Suite(.runLoop) struct ResponseTests {
    /// What `handler` is called with, and the outcome.
    private static func events(_ url: String, _ seen: @escaping @Sendable (HTTPEvent) -> Void = { _ in })
        throws
        -> (events: [String], outcome: Outcome)
    {
        let trace = Trace()
        let outcome = HTTPSession().run(
            HTTPRequest(url),
            to: .handler { event in
                switch event {
                case .response(let head): trace("\(head.status)")
                case .bytes(let bytes): trace(String(decoding: bytes, as: UTF8.self))
                }
                seen(event)
            })
        return (trace.all, outcome)
    }

    private static let trailer = "0\r\nHTTP/1.1 404 Again: x\r\nX: y\r\n \r\nZ: z\r\n\r\n"

    @Test func `a trailer is no second head`() async throws {
        let hasBody = Answer<Bool>()
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            _ = hasBody.wait()
            peer.send(Self.trailer)
        }
        let result = try await onItsOwnThread {
            try Self.events(server.url) { if case .bytes = $0 { hasBody.give(true) } }
        }
        #expect(result.events == ["200", "hello"])
        #expect(try result.outcome.get().status == 200)
    }

    @Test func `a file keeps its bytes when a trailer looks like a head`() async throws {
        let folder = TemporaryFolder()
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n\(Self.trailer)")
        }
        let path = folder.path.appending("file")
        let outcome = try await onItsOwnThread { HTTPSession().run(HTTPRequest(server.url), to: .file(path)) }
        #expect(try outcome.get().status == 200)
        #expect(content(of: path.string) == Array("hello".utf8))
    }

    @Test func `a line of white space does not end a head`() async throws {
        let server = try TestServer.responding { head, _ in
            head.contains(" /first ")
                ? "HTTP/1.1 302 Found\r\nX: y\r\n \r\nContent-Length: 3\r\nLocation: /\r\n\r\nabc"
                : "HTTP/1.1 200 OK\r\nX: y\r\n\t \r\nETag: \"1\"\r\nContent-Length: 5\r\n\r\nhello"
        }
        let (events, outcome) = try await onItsOwnThread { try Self.events(server.url + "/first") }
        #expect(events == ["200", "hello"])
        #expect(try outcome.get().fields["ETag"] == "\"1\"")
        #expect(try outcome.get().fields["X"] == "y")
    }

    /// Lines of 2000 bytes, 600 KB in all.
    @Test(arguments: ["trailers", "interim responses"])
    func `endless fields are an error`(place: String) async throws {
        let line = "X: \(String(repeating: "a", count: 2000))\r\n"
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            if place == "trailers" {
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n")
                for _ in 0..<300 { peer.send(line) }
                peer.send("\r\n")
            } else {
                for _ in 0..<300 { peer.send("HTTP/1.1 103 Early Hints\r\n\(line)\r\n") }
                peer.send(response())
            }
            peer.shutDown()
            peer.waitForEnd()
        }
        #expect(try await onItsOwnThread { HTTPSession().run(server.url) }.kind == .invalidResponse)
    }

    @Test(arguments: [
        ("Content-Length: 5\r\nContent-Length: 4\r\n\r\nhello", "Content-Length has two values"),
        ("Transfer-Encoding: chunked\r\n\r\nhello", "chunk"),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello, world", "chunk"),
    ])
    func `a body whose length is not clear is an invalid response`(rest: String, reason: String) async throws
    {
        let server = try TestServer { peer, number in
            #expect(number == 0, "such a request is not sent again")
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\n\(rest)")
        }
        let outcome = try await onItsOwnThread { HTTPSession { $0.retries = 1 }.run(server.url) }
        #expect(outcome.kind == .invalidResponse)
        #expect("\(outcome)".contains(reason))
    }

    @Test func `a length that is given twice is one`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 5\r\n\r\nhello")
        }
        #expect(try await onItsOwnThread { HTTPSession().run(server.url) }.body == "hello")
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 103 Early Hints\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /\r\n",
    ])
    func `a connection that ends inside a head is lost, and the request sent again`(head: String) async throws
    {
        let server = try TestServer { peer, number in
            while peer.readHead() != nil {
                if number == 0 { return peer.send(head) }
                peer.send(response(body: "hello"))
            }
        }
        let retried = try await onItsOwnThread {
            HTTPSession {
                $0.retries = 1
                $0.retryDelay = .milliseconds(1)
            }.run(server.url)
        }
        #expect(retried.body == "hello")
        let other = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send(head)
        }
        #expect(try await onItsOwnThread { HTTPSession().run(other.url) }.kind == .connectionLost)
    }
}
