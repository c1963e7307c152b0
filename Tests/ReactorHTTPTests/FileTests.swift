import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Downloads to files, whole, cut and resumed.
@Suite(.runLoop) struct FileTests {
    private let folder = TemporaryFolder()
    private var path: FilePath { folder.path.appending("file") }

    private func download(_ url: String, resumes: Bool = false, retries: Int = 0) async throws -> Outcome {
        let path = path
        return try await onItsOwnThread {
            let session = HTTPSession {
                $0.retries = retries
                $0.retryDelay = .milliseconds(1)
            }
            return session.run(HTTPRequest(url), to: .file(path, resumes: resumes))
        }
    }

    /// Serves `body`, the first time only its beginning; ranges as the server of `tag` does.
    private func cutting(_ body: String, at count: Int, tag: @escaping @Sendable (Int) -> String?) throws
        -> TestServer
    {
        let heads = Trace()
        let server = try TestServer { peer, number in
            guard let head = peer.readHead() else { return }
            heads(head)
            let (length, tagField) = (body.utf8.count, tag(number).map { "ETag: \($0)\r\n" } ?? "")
            if number == 0 {
                peer.send(
                    "HTTP/1.1 200 OK\r\nContent-Length: \(length)\r\n\(tagField)\r\n\(body.prefix(count))")
            } else if head.contains("Range: bytes=\(count)-"), let tag = tag(number),
                head.contains("If-Range: \(tag)")
            {
                peer.send("HTTP/1.1 206 Partial Content\r\nContent-Length: \(length - count)\r\n\(tagField)")
                peer.send(
                    "Content-Range: bytes \(count)-\(length - 1)/\(length)\r\n\r\n\(body.dropFirst(count))")
            } else {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(length)\r\n\(tagField)\r\n\(body)")
            }
            peer.shutDown()
            peer.waitForEnd()
        }
        return server
    }

    @Test func `a file has its name when it is whole`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        #expect(try await download(server.url).get().status == 200)
        #expect(content(of: path.string) == Array("hello".utf8))
        #expect(folder.names == ["file"])
    }

    @Test func `an empty file is saved`() async throws {
        let server = try TestServer.responding { _, _ in response() }
        #expect(try await download(server.url).get().status == 200)
        #expect(content(of: path.string) == [])
    }

    @Test func `a status that is not success leaves an older file alone`() async throws {
        _ = try folder.file("old".utf8)
        let server = try TestServer.responding { _, _ in response("404 Not Found", body: "missing") }
        #expect(try await download(server.url).kind == .status(404))
        #expect(content(of: path.string) == Array("old".utf8))
        #expect(folder.names == ["file"])
    }

    @Test func `a folder that is missing is an error with the file's name`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let outcome = try await onItsOwnThread {
            HTTPSession().run(HTTPRequest(server.url), to: .file("/nonexistent/file"))
        }
        #expect(outcome.kind == .write(IOError(.open, "/nonexistent/file.part", .noSuchFileOrDirectory)))
    }

    @Test func `a cut download leaves nothing unless it can be resumed`() async throws {
        let server = try cutting("hello world", at: 5) { _ in nil }
        #expect(try await download(server.url, resumes: true).kind == .truncated)
        #expect(folder.names == [])
        let tagged = try cutting("hello world", at: 5) { _ in "\"1\"" }
        #expect(try await download(tagged.url).kind == .truncated)
        #expect(folder.names == [])
    }

    @Test func `a cut download is resumed where it ended`() async throws {
        let server = try cutting("hello world", at: 5) { _ in "\"1\"" }
        #expect(try await download(server.url, resumes: true).kind == .truncated)
        #expect(content(of: path.string + ".part") == Array("hello".utf8))
        let outcome = try await download(server.url, resumes: true)
        #expect(try outcome.get().status == 206)
        #expect(content(of: path.string) == Array("hello world".utf8))
        #expect(folder.names == ["file"])
    }

    @Test func `a download of another version begins anew`() async throws {
        let server = try cutting("hello world", at: 5) { "\"\($0)\"" }
        #expect(try await download(server.url, resumes: true).kind == .truncated)
        #expect(try await download(server.url, resumes: true).get().status == 200)
        #expect(content(of: path.string) == Array("hello world".utf8))
    }

    /// A partial file of five bytes is continued by a response with these fields.
    @Test(arguments: [
        ("\"1\"", ["Content-Range: bytes 3-10/11"]),
        ("\"1\"", ["Content-Range: bytes 5-7/11"]),
        ("\"1\"", ["Content-Range: bytes 5-10/*"]),
        ("\"1\"", ["Content-Range: bytes 5-10/11", "ETag: \"2\""]),
        (
            "Mon, 02 Nov 2026 08:00:00 GMT",
            ["Content-Range: bytes 5-10/11", "Last-Modified: Tue, 03 Nov 2026 08:00:00 GMT"]
        ),
        ("\"1\"", ["Content-Range: bytes 5-9223372036854775807/9223372036854775807"]),
    ])
    func `a response that is not the rest of the file is asked for anew, without a range`(
        validator: String, fields: [String]
    ) async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file(validator.utf8, name: "file.part.validator")
        let heads = Trace()
        let server = try TestServer.responding { head, number in
            heads(head)
            return number == 0
                ? response("206 Partial Content", fields, body: " world") : response(body: "hello world")
        }
        #expect(try await download(server.url, resumes: true).get().status == 200)
        #expect(content(of: path.string) == Array("hello world".utf8))
        #expect(heads.all[0].contains("Range: bytes=5-"))
        #expect(!heads.all[1].contains("Range:"))
    }

    @Test(arguments: [
        HTTPRequest("", fields: ["Range": "bytes=2-3"]), HTTPRequest("", method: "POST"),
        HTTPRequest("", body: .bytes([1])),
    ])
    func `a request with a range of its own, a body or another method is not resumed`(
        request: HTTPRequest
    ) async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let heads = Trace()
        let server = try TestServer { peer, _ in
            guard let head = peer.readHead() else { return }
            heads(head)
            peer.send("HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nETag: \"1\"\r\n\r\nabc")
            peer.shutDown()
            peer.waitForEnd()
        }
        var request = request
        request.url = server.url
        let sent = request
        let outcome = try await onItsOwnThread { [path] in
            HTTPSession().run(sent, to: .file(path, resumes: true))
        }
        #expect(outcome.kind == .truncated)
        #expect(heads.all.count == 1)
        #expect(!heads.all[0].contains("If-Range"))
        #expect(heads.all[0].contains("Range: bytes=2-3\r\n") == (request.fields["Range"] != nil))
        #expect(!heads.all[0].contains("Range: bytes=5-"))
        #expect(folder.names == [])
    }

    /// Continues a partial file of five bytes with `rest`, as a part of 11, and one of eight with what is missing then.
    private func continuing(with rest: String) throws -> TestServer {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        return try TestServer { peer, _ in
            guard let head = peer.readHead() else { return }
            let offset = head.contains("Range: bytes=8-") ? 8 : 5
            peer.send("HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\n")
            peer.send("Content-Range: bytes \(offset)-10/11\r\n")
            peer.send(offset == 8 ? "Content-Length: 3\r\n\r\nrld" : rest)
            peer.shutDown()
            peer.waitForEnd()
        }
    }

    @Test(
        arguments: [
            "Content-Length: 3\r\n\r\n wo", "Transfer-Encoding: chunked\r\n\r\n3\r\n wo\r\n0\r\n\r\n",
            "Connection: close\r\n\r\n wo",
        ], [0, 1])
    func `a rest with fewer bytes than its range has is not whole, and goes on`(rest: String, retries: Int)
        async throws
    {
        let server = try continuing(with: rest)
        if retries == 0 {
            #expect(try await download(server.url, resumes: true).kind == .truncated)
            #expect(content(of: path.string + ".part") == Array("hello wo".utf8))
        }
        #expect(try await download(server.url, resumes: true, retries: retries).get().status == 206)
        #expect(content(of: path.string) == Array("hello world".utf8))
        #expect(folder.names == ["file"])
    }

    @Test func `a rest with more bytes than its range has is an error, and nothing is kept`() async throws {
        let server = try continuing(with: "Content-Length: 8\r\n\r\n worldXY")
        #expect(try await download(server.url, resumes: true, retries: 1).kind == .invalidResponse)
        #expect(folder.names == [])
    }

    @Test(.enabled(if: Nginx.isAvailable))
    func `a download over HTTP 2 that the server cuts goes on`() async throws {
        let nginx = try Nginx.shared.get()
        let server = try cutting("hello world", at: 5) { _ in "\"1\"" }
        let url = nginx.secure + "/relay/\(server.url.split(separator: ":").last!)"
        let outcome = try await onItsOwnThread { [path] in
            let session = HTTPSession {
                $0.trustRoots = nginx.certificate
                $0.retries = 1
                $0.retryDelay = .milliseconds(1)
            }
            return session.run(HTTPRequest(url), to: .file(path))
        }
        #expect(try outcome.get().version == .http2)
        #expect(content(of: path.string) == Array("hello world".utf8))
    }

    @Test func `a response that has no more of the file does not count`() async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let server = try TestServer.responding { _, _ in
            response("416 Range Not Satisfiable", ["Content-Range: bytes */5"], body: "no such range")
        }
        try await onItsOwnThread { [path] in
            let (loop, isDone) = (RunLoop.current, Shared(false))
            let session = HTTPSession()
            let transfer = session.start(HTTPRequest(server.url), to: .file(path, resumes: true)) { outcome in
                #expect(outcome.kind == nil)
                isDone.value = true
                loop.stop()
            }
            loop.run { !isDone.value }
            #expect(transfer.progress.bytesReceived == 5)
        }
    }

    @Test func `a length that no file has is an error`() async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let server = try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send("HTTP/1.1 206 Partial Content\r\nContent-Length: 9223372036854775807\r\n")
            peer.send("Content-Range: bytes 5-10/11\r\n\r\n world")
            peer.shutDown()
            peer.waitForEnd()
        }
        #expect(try await download(server.url, resumes: true).kind == .truncated)
    }

    @Test func `a retry goes on where the first attempt ended`() async throws {
        let server = try cutting("hello world", at: 5) { _ in "\"1\"" }
        #expect(try await download(server.url, retries: 1).get().status == 206)
        #expect(content(of: path.string) == Array("hello world".utf8))
        #expect(folder.names == ["file"])
    }

    @Test(arguments: [408, 429, 500, 502, 503, 504])
    func `a download that a busy server refuses is tried again`(status: Int) async throws {
        let server = try TestServer.responding { _, number in
            number == 0 ? response("\(status) Busy", body: "wait") : response(body: "hello")
        }
        #expect(try await download(server.url).kind == .status(status))
        let other = try TestServer.responding { _, number in
            number == 0 ? response("\(status) Busy", body: "wait") : response(body: "hello")
        }
        #expect(try await download(other.url, retries: 1).get().status == 200)
        #expect(content(of: path.string) == Array("hello".utf8))
    }

    @Test(arguments: [
        ("Content-Range: bytes */5", "\"1\"", "hello"), ("Content-Range: bytes */6", "\"1\"", "hello world"),
        ("Content-Range: bytes */5", "\"2\"", "hello world"), ("X-Range: none", "\"1\"", "hello world"),
    ])
    func `a partial file is finished if the server has no more of that version`(
        range: String, tag: String, result: String
    ) async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let server = try TestServer.responding { head, _ in
            head.contains("Range:")
                ? response("416 Range Not Satisfiable", [range, "ETag: \(tag)"], body: "no such range")
                : response(body: "hello world")
        }
        let outcome = try await download(server.url, resumes: true)
        #expect(try outcome.get().status == (result == "hello" ? 416 : 200))
        #expect(content(of: path.string) == Array(result.utf8))
        #expect(folder.names == ["file"])
        #expect(server.requests.all.count == (result == "hello" ? 1 : 2))
    }

    @Test func `a validator that would break the request is not sent`() async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"\r\nX-Injected: 1".utf8, name: "file.part.validator")
        let server = try TestServer.responding { _, _ in response(body: "hello world") }
        #expect(try await download(server.url, resumes: true).get().status == 200)
        #expect(content(of: path.string) == Array("hello world".utf8))
        #expect(server.requests.all.count == 1)
        #expect(!server.requests.all[0].contains("X-Injected"))
        #expect(!server.requests.all[0].contains("Range"))
    }

    @Test func `a download that begins anew without a range has not been retried`() async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let heads = Trace()
        let server = try TestServer { peer, number in
            guard let head = peer.readHead() else { return }
            heads(head)
            switch number {
            case 0: peer.send("HTTP/1.1 206 Partial Content\r\nContent-Length: 6\r\n\r\n world")
            case 1: peer.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello")
            default: peer.send(response(body: "hello world"))
            }
            peer.shutDown()
            peer.waitForEnd()
        }
        #expect(try await download(server.url, resumes: true, retries: 1).get().status == 200)
        #expect(content(of: path.string) == Array("hello world".utf8))
        #expect(heads.all.count == 3)
    }

    @Test(arguments: ["GET", "POST"])
    func `a transfer that receives nothing keeps what an earlier one has`(method: String) async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let server = try TestServer.responding { _, _ in response("404 Not Found") }
        let outcome = try await onItsOwnThread { [path] in
            HTTPSession().run(HTTPRequest(server.url, method: method), to: .file(path, resumes: true))
        }
        #expect(outcome.kind == .status(404))
        #expect(folder.names.sorted() == ["file.part", "file.part.validator"])
        #expect(content(of: path.string + ".part") == Array("hello".utf8))
    }

    /// What a process leaves that is killed while it downloads.
    @Test(arguments: [false, true])
    func `no other version's validator is beside the bytes of a download`(resumes: Bool) async throws {
        let (gate, received) = (Answer<Bool>(), Answer<Bool>())
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\nETag: \"2\"\r\n\r\nhello")
            _ = gate.wait()
            peer.send(" world")
            peer.waitForEnd()
        }
        _ = try folder.file("older".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let thread = try RunLoopThread(name: "network")
        try await onItsOwnThread { [path, folder] in
            let outcome = Answer<Outcome>()
            HTTPSession(on: thread.runLoop).start(
                HTTPRequest(server.url), to: .file(path, resumes: resumes),
                progress: { if $0.bytesReceived == 5 { received.give(true) } }, completion: outcome.give)
            #expect(received.wait())
            let kept = content(of: folder.path("file.part.validator"))
            #expect(kept == (resumes ? Array("\"2\"".utf8) : nil))
            gate.give(true)
            #expect(outcome.wait().kind == nil)
            thread.stop()
        }
        #expect(folder.names == ["file"])
    }

    @Test func `a download that is cut and then refused leaves nothing`() async throws {
        let server = try TestServer { peer, number in
            _ = peer.readHead()
            let cut = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nETag: \"1\"\r\n\r\nhello"
            peer.send(number == 0 ? cut : response("404 Not Found"))
        }
        #expect(try await download(server.url, retries: 1).kind == .status(404))
        #expect(folder.names == [])
    }
}
