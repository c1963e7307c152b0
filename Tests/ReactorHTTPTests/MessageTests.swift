import HTTPTypes
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// Requests, responses and fields of HTTPTypes, which other packages use, too.
@Suite(.runLoop) struct MessageTests {
    private static let name = HTTPField.Name("X-A")!

    private static func head(of request: HTTPRequest, _ server: TestServer) -> String? {
        let count = server.requests.all.count
        guard HTTPSession().run(request).kind == nil else { return nil }
        return server.requests.all.dropFirst(count).first
    }

    @Test(arguments: [
        ("https://example.org", "https", "example.org", "/"),
        ("HTTP://a:b@example.org:8080/a/b?c=d/e#f", "HTTP", "a:b@example.org:8080", "/a/b?c=d/e"),
        ("http://[::1]:80?a=b", "http", "[::1]:80", "/?a=b"), ("http://a#b", "http", "a", "/"),
    ])
    func `a URL has a scheme, an authority and a path`(
        url: String, scheme: String, authority: String, path: String
    ) {
        let request = HTTPRequest(url, method: .post, headerFields: [.accept: "*/*"])
        #expect(request.method == .post && request.headerFields == [.accept: "*/*"])
        #expect(request.scheme == scheme && request.authority == authority && request.path == path)
    }

    @Test func `a request that another package has made is sent`() throws {
        let server = try TestServer.sending(response())
        let request = HTTPRequest(
            method: .options, scheme: "http", authority: String(server.url.dropFirst("http://".count)),
            path: "/a?b=c", headerFields: [Self.name: "1", .accept: "", Self.name: "2"])
        let head = try #require(Self.head(of: request, server))
        #expect(head.hasPrefix("OPTIONS /a?b=c HTTP/1.1\r\n"))
        #expect(head.contains("X-A: 1\r\nX-A: 2\r\n") && !head.contains("Accept:"))
    }

    @Test(
        arguments: [
            (nil, "127.0.0.1:1", "/"), ("http", nil, "/"), ("http", "127.0.0.1:1", nil), ("ftp", "a", "/"),
            ("http", "", "/"), ("http", "127.0.0.1:1", "@127.0.0.1:1/"), ("http", "127.0.0.1:1", ""),
            ("http", "127.0.0.1:1", "*"), ("http", "127.0.0.1:1/a", "/"), ("http", "127.0.0.1:1?", "/"),
            ("http", "127.0.0.1:1#", "/"), ("http", "127.0.0.1:1", "/a b"),
        ] as [(String?, String?, String?)])
    func `a request whose parts make no URL is refused`(scheme: String?, authority: String?, path: String?) {
        let request = HTTPRequest(method: .get, scheme: scheme, authority: authority, path: path)
        #expect(HTTPSession().run(request).kind == .invalidURL)
    }

    @Test func `a request with a protocol is refused`() {
        var request = HTTPRequest("http://127.0.0.1:1/", method: .connect)
        request.extendedConnectProtocol = "websocket"
        #expect(HTTPSession().run(request).kind == .invalidRequest)
    }

    @Test(arguments: ["a\r\nX-B: b", "a\nX-B: b", "a\0X-B: b"], [false, true])
    func `a value cannot begin another field`(value: String, isLenient: Bool) throws {
        let server = try TestServer.sending(response())
        let lenient = HTTPField(name: Self.name, lenientValue: Array(value.utf8))
        let field = isLenient ? lenient : HTTPField(name: Self.name, value: value)
        let head = try #require(
            Self.head(of: HTTPRequest(server.url, headerFields: HTTPFields([field])), server))
        #expect(head.contains("\r\nX-A: a ") && !head.contains("\nX-B:"))
    }

    @Test func `cookies are sent in one line`() throws {
        let server = try TestServer.sending(response())
        var request = HTTPRequest(server.url, headerFields: [.cookie: "a=1", .accept: "*/*", .cookie: "b=2"])
        #expect(Self.head(of: request, server)?.contains("Cookie: a=1; b=2\r\n") == true)
        request.headerFields[.cookie] = "c=3; d=4"
        #expect(Self.head(of: request, server)?.contains("Cookie: c=3; d=4\r\n") == true)
    }

    @Test func `the bytes of a value need not be UTF-8`() throws {
        let server = try TestServer { peer, _ in
            var head: [UInt8] = []
            while !head.suffix(4).elementsEqual("\r\n\r\n".utf8) { head += peer.receive(1) }
            let line = head.split(separator: 10).first { $0.starts(with: "X-A:".utf8) } ?? []
            peer.send(Array("HTTP/1.1 204 No Content\r\n".utf8) + line + Array("\n\r\n".utf8))
        }
        let bytes: [UInt8] = [0xE4, 0x20, 0xFF]
        let field = HTTPField(name: Self.name, value: bytes)
        let request = HTTPRequest(server.url, headerFields: HTTPFields([field]))
        #expect(try HTTPSession().run(request).get().headerFields[fields: Self.name] == [field])
    }

    @Test func `a response has the fields whose names are tokens, and a reason phrase`() throws {
        let server = try TestServer.sending(
            "HTTP/1.1 404 Not Here\r\nX-A: a\u{1B}b\r\n: c\r\nX A: d\r\n e\r\nX-A : f\r\nx-a: g\r\n\r\n")
        let answer = try HTTPSession().run(server.url).get()
        #expect(answer.head == HTTPResponse(status: 404, headerFields: answer.headerFields))
        #expect(answer.status.reasonPhrase == "Not Here" && answer.status.kind == .clientError)
        #expect(answer.headerFields[values: Self.name] == ["a\u{1B}b", "g"])
        #expect(answer.headerFields.count == 2)
    }

    @Test(arguments: ["1000", "2000", "99999999999999999999", "-200", "x"])
    func `a status that is none is an error`(status: String) throws {
        let server = try TestServer.sending("HTTP/1.1 \(status) X\r\nContent-Length: 0\r\n\r\n")
        #expect(HTTPSession().run(server.url).kind != nil)
    }

    /// `HTTPFields` traps on that many.
    @Test func `a head of 70,000 fields is an error`() throws {
        let server = try TestServer.sending(
            "HTTP/1.1 200 OK\r\n" + String(repeating: "a:\r\n", count: 70_000) + "\r\n")
        #expect(HTTPSession().run(server.url).kind == .invalidResponse)
    }
}
