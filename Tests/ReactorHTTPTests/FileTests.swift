import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// Downloads to files, whole, cut and resumed.
@Suite(.runLoop) struct FileTests {
    private let target = DownloadFolder()

    /// Serves "hello world", the first time only its beginning; later its rest to clients that have the same version.
    private static func cutting(tag: @escaping @Sendable (_ connection: Int) -> String?) throws -> TestServer
    {
        try .sending { head, number in
            let tag = tag(number)
            let fields = tag.map { "ETag: \($0)\r\n" } ?? ""
            if let tag, head.contains("Range: bytes=5-"), head.contains("If-Range: \(tag)") {
                return response(
                    "206 Partial Content", ["ETag: \(tag)", "Content-Range: bytes 5-10/11"], body: " world")
            }
            let body = number == 0 ? "hello" : "hello world"
            return "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\(fields)\r\n\(body)"
        }
    }

    @Test(arguments: ["hello", ""])
    func `a file has its name when it is whole`(body: String) throws {
        let server = try TestServer.responding { _, _ in response(body: body) }
        #expect(try target.run(server).get().status == 200)
        #expect(target.files == ["file": body])
    }

    @Test func `a file is not asked for in a compressed form, as a body in memory is`() throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        #expect(try target.run(server).get().status == 200)
        #expect(HTTPSession().run(server.url).body == "hello")
        #expect(HTTPSession { $0.acceptsCompressedBodies = false }.run(server.url).body == "hello")
        #expect(server.requests.all.map { $0.contains("Accept-Encoding: ") } == [false, true, false])
    }

    @Test func `a status that is not success leaves an older file alone`() throws {
        _ = try target.folder.file("old".utf8)
        let server = try TestServer.responding { _, _ in response("404 Not Found", body: "missing") }
        #expect(target.run(server).kind == .status(404))
        #expect(target.files == ["file": "old"])
    }

    @Test(arguments: [(nil, true), ("\"1\"", false)])
    func `a cut download leaves nothing unless it can be resumed`(tag: String?, resumes: Bool) throws {
        let server = try Self.cutting { _ in tag }
        #expect(target.run(server, resumes: resumes).kind == .truncated)
        #expect(target.names == [])
    }

    @Test func `a cut download is resumed where it ended, and its progress includes what it had`() throws {
        let (server, last) = (try Self.cutting { _ in "\"1\"" }, Shared<HTTPTransfer.Progress?>(nil))
        #expect(target.run(server, resumes: true).kind == .truncated)
        #expect(target.savedPart == "hello")
        let outcome = target.run(HTTPRequest(server.url), resumes: true, progress: { last.value = $0 })
        #expect(try outcome.get().status == 206)
        #expect(last.value?.bytesResumed == 5 && last.value?.bytesReceived == 11)
        #expect(target.files == ["file": "hello world"])
    }

    @Test(.enabled(if: Nginx.isAvailable))
    func `a cut download over HTTP 2 is resumed by a retry`() throws {
        let (nginx, server) = (try Nginx.shared.get(), try Self.cutting { _ in "\"1\"" })
        let url = nginx.secure + "/relay/\(server.url.split(separator: ":").last!)"
        let session = HTTPSession {
            $0.trustRoots = nginx.certificate
            ($0.retries, $0.retryDelay) = (1, .milliseconds(1))
        }
        #expect(try session.run(HTTPRequest(url), to: .file(target.path)).get().version == .http2)
        #expect(target.saved == "hello world")
    }

    @Test func `a download of another version begins anew`() throws {
        let server = try Self.cutting { "\"\($0)\"" }
        #expect(target.run(server, resumes: true).kind == .truncated)
        #expect(try target.run(server, resumes: true).get().status == 200)
        #expect(target.saved == "hello world")
    }

    private static let (dateOfPart, laterDate) =
        ("Mon, 02 Nov 2026 08:00:00 GMT", "Tue, 03 Nov 2026 08:00:00 GMT")

    /// A partial file of five bytes is continued by a response with these fields.
    @Test(arguments: [
        ("\"1\"", "206", ["Content-Range: bytes 3-10/11"]), ("\"1\"", "206", ["Content-Range: bytes 5-7/11"]),
        ("\"1\"", "206", ["Content-Range: bytes 5-10/*"]),
        ("\"1\"", "206", ["Content-Range: bytes 5-10/11", "ETag: \"2\""]),
        (dateOfPart, "206", ["Content-Range: bytes 5-10/11", "Last-Modified: \(laterDate)"]),
        ("\"1\"", "206", ["Content-Range: bytes 5-\(Int.max)/\(Int.max)"]),
        ("\"1\"", "206", ["Content-Range: bytes 5-10/\(Int.min)"]),
        ("\"1\"", "206", ["Content-Range: bytes 5-\(Int.max)/\(Int.min)"]),
        ("\"1\"", "416", ["Content-Range: bytes */6", "ETag: \"1\""]),
        ("\"1\"", "416", ["Content-Range: bytes */5", "ETag: \"2\""]), ("\"1\"", "416", ["ETag: \"1\""]),
    ])
    func `anything but the rest of the file is asked for anew`(
        validator: String, status: String, fields: [String]
    ) throws {
        try target.leavePart(validator: validator)
        let server = try TestServer.responding { _, number in
            number == 0 ? response("\(status) X", fields, body: " world") : response(body: "hello world")
        }
        #expect(try target.run(server, resumes: true).get().status == 200)
        #expect(target.files == ["file": "hello world"])
        #expect(server.requests.all.map { $0.contains("Range: bytes=5-") } == [true, false])
        #expect(server.requests.all.last?.contains("Range:") == false)
    }

    @Test func `a partial file is finished if the server has no more of that version`() throws {
        try target.leavePart()
        let server = try TestServer.responding { _, _ in
            response("416 X", ["Content-Range: bytes */5", "ETag: \"1\""], body: "no such range")
        }
        let launch = HTTPSession().launch(HTTPRequest(server.url), to: .file(target.path, resumes: true))
        #expect(try launch.wait().get().status == 416)
        #expect(launch.transfer.progress.bytesReceived == 5)
        #expect(target.files == ["file": "hello"])
    }

    @Test(
        arguments: [
            (.get, [.range: "bytes=2-3"], nil), (.post, [:], nil), (.get, [:], [1]),
        ] as [(HTTPRequest.Method, HTTPFields, [UInt8]?)])
    func `only a plain GET request is resumed`(
        method: HTTPRequest.Method, fields: HTTPFields, body: [UInt8]?
    ) throws {
        try target.leavePart()
        let server = try TestServer.sending(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nETag: \"1\"\r\n\r\nabc")
        let request = HTTPRequest(server.url, method: method, headerFields: fields)
        let source = body.map(HTTPSource.bytes)
        #expect(target.run(request, body: source, resumes: true).kind == .truncated)
        #expect(server.requests.all.count == 1)
        let head = try #require(server.requests.all.first)
        #expect(!head.contains("If-Range") && !head.contains("Range: bytes=5-"))
        #expect(head.contains("Range: bytes=2-3\r\n") == !fields.isEmpty)
        #expect(target.names == [])
    }

    /// Continues a partial file of five bytes with `rest`, as a part of 11, and one of eight with what is missing then.
    private static func continuing(with rest: String) throws -> TestServer {
        try .sending { head, _ in
            let offset = head.contains("Range: bytes=8-") ? 8 : 5
            return "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Range: bytes \(offset)-10/11\r\n"
                + (offset == 8 ? "Content-Length: 3\r\n\r\nrld" : rest)
        }
    }

    @Test(
        arguments: [
            "Content-Length: 3\r\n\r\n wo", "Transfer-Encoding: chunked\r\n\r\n3\r\n wo\r\n0\r\n\r\n",
            "Connection: close\r\n\r\n wo",
        ], [0, 1])
    func `a rest that is shorter than its range is continued`(rest: String, retries: Int) throws {
        try target.leavePart()
        let server = try Self.continuing(with: rest)
        if retries == 0 {
            #expect(target.run(server, resumes: true).kind == .truncated)
            #expect(target.savedPart == "hello wo")
        }
        #expect(try target.run(server, resumes: true, retries: retries).get().status == 206)
        #expect(target.files == ["file": "hello world"])
    }

    @Test func `a rest with more bytes than its range has, or a length that no file has, is an error`() throws
    {
        try target.leavePart()
        let longer = try Self.continuing(with: "Content-Length: 8\r\n\r\n worldXY")
        #expect(target.run(longer, resumes: true, retries: 1).kind == .invalidResponse)
        #expect(target.names == [])
        try target.leavePart()
        let endless = try Self.continuing(with: "Content-Length: \(Int.max)\r\n\r\n world")
        #expect(target.run(endless, resumes: true).kind == .truncated)
        #expect(target.saved == nil)
    }

    @Test func `a validator that would break the request is not sent`() throws {
        try target.leavePart(validator: "\"1\"\r\nX-Injected: 1")
        let server = try TestServer.responding { _, _ in response(body: "hello world") }
        #expect(try target.run(server, resumes: true).get().status == 200)
        #expect(target.saved == "hello world")
        #expect(server.requests.all.count == 1)
        let head = try #require(server.requests.all.first)
        #expect(!head.contains("X-Injected") && !head.contains("Range"))
    }

    @Test(arguments: [HTTPRequest.Method.get, .post])
    func `a transfer that receives nothing keeps what an earlier one has`(method: HTTPRequest.Method) throws {
        try target.leavePart()
        let server = try TestServer.responding { _, _ in response("404 Not Found") }
        #expect(target.run(HTTPRequest(server.url, method: method), resumes: true).kind == .status(404))
        #expect(target.names == ["file.part", "file.part.validator"])
        #expect(target.savedPart == "hello")
    }

    /// What a process leaves that is killed while it downloads.
    @Test(arguments: [false, true])
    func `no other version's validator is beside the bytes of a download`(resumes: Bool) throws {
        try target.leavePart()
        let outcome = try target.run(resumes: resumes) {
            let validator = DownloadFolder.text(of: target.folder.path.appending("file.part.validator"))
            #expect(validator == (resumes ? "\"2\"" : nil))
        }
        #expect(outcome.kind == nil)
        #expect(target.names == ["file"])
    }

    @Test(arguments: [408, 429, 500, 502, 503, 504])
    func `a download that a busy server refuses is tried again`(status: Int) throws {
        for retries in [0, 1] {
            let server = try TestServer.responding { _, number in
                number == 0 ? response("\(status) Busy", body: "wait") : response(body: "hello")
            }
            let outcome = target.run(server, retries: retries)
            #expect(outcome.kind == (retries == 0 ? .status(.init(code: status)) : nil))
            #expect(target.saved == (retries == 0 ? nil : "hello"))
        }
    }

    @Test func `a download that begins anew without a range has not been retried`() throws {
        try target.leavePart()
        let server = try TestServer.sending { _, number in
            switch number {
            case 0: response("206 Partial Content", body: " world")
            case 1: "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello"
            default: response(body: "hello world")
            }
        }
        #expect(try target.run(server, resumes: true, retries: 1).get().status == 200)
        #expect(target.saved == "hello world")
        #expect(server.requests.all.count == 3)
    }

    @Test func `a download that is cut and then refused leaves nothing`() throws {
        let server = try TestServer.sending { _, number in
            let cut = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nETag: \"1\"\r\n\r\nhello"
            return number == 0 ? cut : response("404 Not Found")
        }
        #expect(target.run(server, retries: 1).kind == .status(404))
        #expect(target.names == [])
    }
}
