import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Responses that do not conform, or that misuse what HTTP allows.
@Suite(.runLoop) struct ResponseTests {
    @Test(
        arguments: [
            ("", .connectionLost), ("HTTP/1.1 200 OK\r\nContent-Le", .connectionLost),
            ("HTTP/1.1 200 OK\r\n", .connectionLost), ("HTTP/1.1 103 Early Hints\r\n\r\n", .connectionLost),
            ("HTTP/1.1 302 Found\r\nLocation: /\r\n", .connectionLost),
            ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", .truncated),
            ("HTTP/1.1 200 OK\r\nContent-Length: \(1 << 62)\r\n\r\nabc", .truncated),
            ("\u{1}\u{2}garbage\r\n\r\n", .invalidResponse),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 4\r\n\r\nhello", .invalidResponse),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhello", .invalidResponse),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello, world", .invalidResponse),
        ] as [(String, HTTPError.Kind)])
    func `only a response that is cut is asked for again`(text: String, kind: HTTPError.Kind) throws {
        let server = try TestServer.sending(text)
        let session = HTTPSession { ($0.retries, $0.retryDelay) = (1, .milliseconds(1)) }
        // What a length announces is not allocated.
        #expect(session.run(HTTPRequest(server.url), to: .memory(limit: .max)).kind == kind)
        #expect(server.requests.all.count == (kind == .invalidResponse ? 1 : 2))
    }

    @Test func `a response that has been delivered in part is not asked for again`() throws {
        let server = try TestServer.sending("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        let session = HTTPSession { ($0.retries, $0.retryDelay) = (2, .milliseconds(1)) }
        let trace = Trace()
        let handler = HTTPDestination.pieces { trace(String(decoding: $0, as: UTF8.self)) }
        for destination in [handler, .stream(.toMemory())] {
            #expect(session.run(HTTPRequest(server.url), to: destination).kind == .truncated)
        }
        #expect(server.requests.all.count == 2 && trace.all == ["abc"])
    }

    /// 600 KB.
    @Test(arguments: ["fields", "lines of a field", "trailers", "interim responses"])
    func `a head, trailers or interim responses without an end are an error`(place: String) throws {
        let server = try TestServer.sending { _, _ in
            let text = String(repeating: "a", count: 2000)
            func lines(_ start: String, _ end: String = "\r\n") -> String {
                String(repeating: start + text + end, count: 300)
            }
            return switch place {
            case "fields": "HTTP/1.1 200 OK\r\n" + lines("X: ")
            case "lines of a field": "HTTP/1.1 200 OK\r\nX: b\r\n" + lines(" ")
            case "trailers":
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\(lines("X: "))\r\n"
            default: lines("HTTP/1.1 103 Early Hints\r\nX: ", "\r\n\r\n") + response()
            }
        }
        #expect(HTTPSession().run(server.url).kind == .invalidResponse)
    }

    @Test func `a trailer that looks like a head is none, for a handler and for a file`() throws {
        let (hasBody, folder, trace) = (Answer<Bool>(), TemporaryFolder(), Trace())
        let server = try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            _ = hasBody.wait()
            peer.send("0\r\nHTTP/1.1 404 Again: x\r\nX: y\r\n \r\nZ: z\r\n\r\n")
        }
        let handler = HTTPDestination.handler { event in
            switch event {
            case .response(let head): trace("\(head.status.code)")
            case .bytes(let bytes):
                trace(String(decoding: bytes, as: UTF8.self))
                hasBody.give(true)
            }
        }
        let path = folder.path.appending("file")
        for destination in [handler, .file(path)] {
            #expect(try HTTPSession().run(HTTPRequest(server.url), to: destination).get().status == 200)
        }
        #expect(trace.all == ["200", "hello"])
        #expect(content(of: path.string) == Array("hello".utf8))
    }

    @Test func `a line of white space does not end a head`() throws {
        let server = try TestServer.responding { head, _ in
            head.contains(" /first ")
                ? "HTTP/1.1 302 Found\r\nX: y\r\n \r\nContent-Length: 3\r\nLocation: /\r\n\r\nabc"
                : "HTTP/1.1 200 OK\r\nX: y\r\n\t \r\nETag: \"1\"\r\nContent-Length: 5\r\n\r\nhello"
        }
        let answer = try HTTPSession().run(server.url + "/first").get()
        #expect(answer.headerFields[.eTag] == "\"1\"" && answer.headerFields[HTTPField.Name("X")!] == "y")
        #expect(answer.body == Array("hello".utf8))
    }

    @Test func `a field may continue in further lines, and a length may be given twice`() throws {
        let server = try TestServer.sending(
            "HTTP/1.1 302 Found\r\nX-A: b\r\n  c\r\n\td\r\nLocation:\r\n /x\r\nContent-Length: 2\r\n"
                + "content-length: 2\r\n\r\nok")
        let answer = try HTTPSession().run(server.url).get()
        #expect(answer.status == 302 && answer.headerFields[HTTPField.Name("X-A")!] == "b c d")
        #expect(answer.body == Array("ok".utf8))
    }

    @Test func `a length in the response to HEAD takes no memory`() throws {
        let server = try TestServer.sending("HTTP/1.1 200 OK\r\nContent-Length: \(1 << 62)\r\n\r\n")
        let request = HTTPRequest(server.url, method: .head)
        #expect(HTTPSession().run(request, to: .memory(limit: .max)).kind == nil)
    }

    @Test func `a body that is too large for memory is an error`() throws {
        let server = try TestServer.sized(1001)
        let outcome = HTTPSession().run(HTTPRequest(server.url), to: .memory(limit: 1000))
        #expect(outcome.kind == .bodyTooLarge(limit: 1000))
        #expect(HTTPSession().run(HTTPRequest(server.url), to: .memory(limit: 1001)).kind == nil)
    }
}
