import ExampleTestSupport
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@testable import downloader

@Suite(.runLoop) struct DownloaderTests {
    private let folder = TemporaryFolder()

    private func download(
        _ arguments: [String], output: Child.End = .pipe,
        _ body: (Child) throws -> String = { $0.readOutput() }
    ) throws -> Outcome {
        try run("downloader", ["--output", folder.path.string] + arguments, output: output, body)
    }

    /// Answers each request with its path.
    private static func echoing() throws -> TestServer {
        try TestServer.responding { head, _ in response(body: String(head.split(separator: " ")[1])) }
    }

    /// Serves `hello world`, the first time only its beginning, and ranges of it.
    ///
    /// - Parameter cut: Called when the beginning has been sent.
    private static func cutting(_ cut: @escaping @Sendable () -> Void = {}) throws -> TestServer {
        let requests = Trace()
        return try TestServer(requests: requests) { peer, number in
            guard let head = peer.readHead() else { return }
            requests(head)
            let fields = "ETag: \"1\"\r\nConnection: close\r\n"
            if number == 0 {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\(fields)\r\nhello")
                cut()
            } else if head.contains("Range: bytes=5-"), head.contains("If-Range: \"1\"") {
                let range = "Content-Range: bytes 5-10/11"
                peer.send(
                    "HTTP/1.1 206 Partial Content\r\nContent-Length: 6\r\n\(fields)\(range)\r\n\r\n world")
            } else {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\(fields)\r\nhello world")
            }
        }
    }

    private func text(_ name: String) -> String? {
        content(of: folder.path(name)).map { String(decoding: $0, as: UTF8.self) }
    }

    // MARK: Names

    @Test(arguments: [
        ("/a/b.txt", "b.txt"), ("/a%20b", "a b"), ("/%E2%82%AC", "€"), ("/x?y=/z#/w", "x"), ("/a%", "a%"),
        ("/%+1", "%+1"), ("", "index.html"), ("/d/", "index.html"), ("?q=/x", "index.html"),
        ("/d/..", "index.html"), ("/%2e%2E", "index.html"), ("/..%2f..%2fetc", "..%2F..%2Fetc"),
        ("/a%5Cb", "a%5Cb"), ("/%1b%5b31m", "%1B[31m"), ("/a%0Ab", "a%0Ab"), ("/%C2%9B", "%C2%9B"),
        ("/%E2%80%AEgpj", "%E2%80%AEgpj"), ("/%ff", "%ff"), ("/.hidden", ".hidden"),
        ("/" + String(repeating: "%E2%82%AC", count: 200), String(repeating: "€", count: 78)),
    ])
    func `a file has the name of the last component of its URL's path`(path: String, name: String) {
        #expect(FileName.of("http://host" + path) == name)
    }

    @Test func `files of the same name get numbers, and none is another's partial file`() throws {
        let server = try Self.echoing()
        let paths = ["/a/x", "/b/x", "/x.part", "/b/x"]
        #expect(try download(paths.map { server.url + $0 }).ending == .exit(0))
        #expect(folder.names.sorted() == ["x", "x.1", "x.2", "x.part.1"])
        #expect(["x", "x.1", "x.part.1"].map(text) == ["/a/x", "/b/x", "/x.part"])
    }

    @Test func `the folder is created with those above it, unless it cannot be made`() throws {
        let server = try Self.echoing()
        let path = folder.path("new/er")
        #expect(try run("downloader", ["--output", path, server.url + "/x"]).isClean)
        #expect(content(of: path + "/x") == Array("/x".utf8))
        unlink(path + "/x")
        rmdir(path)
        rmdir(folder.path("new"))
        let outcome = try run("downloader", ["--output", "/dev/null/folder", server.url + "/x"])
        #expect(outcome.failed("/dev/null/folder"))
    }

    // MARK: Results

    @Test func `one failure of several is an error, and leaves nothing`() throws {
        let server = try TestServer.responding { head, _ in
            head.hasPrefix("GET /missing") ? response("404 Not Found", body: "?") : response(body: "hello")
        }
        let outcome = try download(["a", "missing", "b"].map { server.url + "/" + $0 })
        #expect(outcome.failed("\(server.url)/missing") && outcome.errors.contains("404"))
        #expect(outcome.output.split(separator: "\n").count == 2 && folder.names.sorted() == ["a", "b"])
    }

    private static let sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"

    @Test func `checksums have the form of sha256sum, and a line of JSON says what became of each download`()
        throws
    {
        let server = try TestServer.responding { _, _ in response(body: "hello\n") }
        #expect(
            try download(["--checksum", server.url + "/a"]).output == "\(Self.sum)  \(folder.path("a"))\n")
        let outcome = try download(["--json", "--checksum", server.url + "/a"])
        #expect(outcome.isClean && outcome["bytes"] == 6 && outcome["status"] == 200)
        #expect(outcome.keys == ["url", "file", "bytes", "seconds", "status", "sha256", "error"])
        #expect(
            outcome.output.contains(#""sha256":"\#(Self.sum)""#) && outcome.output.contains(#""error":null"#))
        let failed = try download(["--json", "--checksum", "--retries", "0", "http://127.0.0.1:1/b"])
        #expect(failed.ending == .exit(1))
        #expect(failed.output.contains(#""status":null,"sha256":null,"error":"GET http://127.0.0.1:1/b"#))
    }

    // MARK: Cut and resumed

    @Test func `a download that is cut is tried again where it ended`() throws {
        let server = try Self.cutting()
        #expect(try download(["--retries", "1", server.url + "/x"]).ending == .exit(0))
        #expect(text("x") == "hello world")
        #expect(folder.names == ["x"])
    }

    @Test func `a download that cannot be resumed leaves nothing`() throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        }
        #expect(try download(["--retries", "0", server.url + "/x"]).ending == .exit(1))
        #expect(folder.names == [])
    }

    @Test(arguments: [true, false])
    func `what an interrupted download has received is used if that is wanted`(resumes: Bool) throws {
        let gate = Answer<Bool>()
        let (server, path) = (try Self.cutting { _ = gate.wait() }, folder.path("x.part"))
        let outcome = try download([server.url + "/x"]) { child in
            waitUntil { access(path, F_OK) == 0 }
            child.send(SIGINT)
            return child.readOutput()
        }
        gate.give(true)
        #expect(outcome.ending == .exit(128 + SIGINT))
        #expect(outcome.errors.contains("--resume"))
        #expect(text("x.part") == "hello")
        #expect(folder.names.sorted() == ["x.part", "x.part.validator"])
        #expect(try download((resumes ? ["--resume"] : []) + [server.url + "/x"]).ending == .exit(0))
        #expect(text("x") == "hello world")
        #expect(folder.names == ["x"])
        #expect(server.requests.all.last?.contains("Range: bytes=5-") == resumes)
    }

    @Test func `a second run leaves alone what the first one is downloading`() throws {
        let (begun, gate) = (Answer<Bool>(), Answer<Bool>())
        let server = try Self.cutting {
            begun.give(true)
            _ = gate.wait()
        }
        let part = folder.path("x.part")
        var second: Outcome?
        let first = try download([server.url + "/x"]) { child in
            _ = begun.wait()
            waitUntil { access(part, F_OK) == 0 }
            second = try download([server.url + "/x"])
            gate.give(true)
            return child.readOutput()
        }
        #expect(second?.failed("x.part: Device or resource busy") == true)
        #expect(first.isClean && text("x") == "hello world")
    }

    @Test func `a signal ends downloads that have not started`() throws {
        let (began, gate) = (Answer<Bool>(), Answer<Bool>())
        let server = try TestServer { peer, _ in
            began.give(true)
            _ = gate.wait()
        }
        let urls = (0..<10).map { "\(server.url)/\($0)" }
        let outcome = try download(["--json", "--max-concurrent", "1"] + urls) { child in
            _ = began.wait()
            child.send(SIGTERM)
            return child.readOutput()
        }
        gate.give(true)
        #expect(outcome.ending == .exit(128 + SIGTERM) && !outcome.errors.contains("--resume"))
        #expect(outcome.output.split(separator: "\n").count { !$0.contains(#""error":null"#) } == 10)
        #expect(folder.names == [])
    }

    // MARK: Standard output
}
