import Glibc
import Reactor
import ReactorTestSupport
import SystemPackage
import Testing

@testable import downloader

@Suite struct DownloaderTests {
    private let folder = TemporaryFolder()

    private func download(
        _ arguments: [String], output: Child.End = .pipe,
        _ body: @escaping @Sendable (Child) throws -> String = { $0.readOutput() }
    ) async throws -> Outcome {
        try await run("downloader", ["--output", folder.path.string] + arguments, output: output, body)
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
        ("/%+1", "%+1"), ("", "index.html"), ("/", "index.html"), ("/d/", "index.html"),
        ("?q=/x", "index.html"),
        ("/d/..", "index.html"), ("/%2e%2E", "index.html"), ("/..%2f..%2fetc", "..%2F..%2Fetc"),
        ("/a%5Cb", "a%5Cb"), ("/%1b%5b31m", "%1B[31m"), ("/a%0Ab", "a%0Ab"), ("/%C2%9B", "%C2%9B"),
        ("/%E2%80%AEgpj", "%E2%80%AEgpj"), ("/%ff", "%ff"), ("/.hidden", ".hidden"),
    ])
    func `a file has the name of the last component of its URL's path`(path: String, name: String)
        async throws
    {
        let server = try Self.echoing()
        #expect(try await download([server.url + path]).ending == .exit(0))
        #expect(folder.names == [name])
    }

    @Test func `files of the same name get numbers, and none is another's partial file`() async throws {
        let server = try Self.echoing()
        let paths = ["/a/x", "/b/x", "/x.part", "/b/x"]
        #expect(try await download(paths.map { server.url + $0 }).ending == .exit(0))
        #expect(folder.names.sorted() == ["x", "x.1", "x.2", "x.part.1"])
        #expect(["x", "x.1", "x.part.1"].map(text) == ["/a/x", "/b/x", "/x.part"])
    }

    @Test func `names that are too long are cut, and stay apart`() async throws {
        let server = try Self.echoing()
        let long = String(repeating: "%E2%82%AC", count: 200)
        let paths = ["/a/\(long)", "/b/\(long)", "/" + String(repeating: "x", count: 4_000)]
        #expect(try await download(paths.map { server.url + $0 }).ending == .exit(0))
        let name = String(repeating: "€", count: 78)
        #expect(Set(folder.names) == [name, name + ".1", String(repeating: "x", count: 234)])
    }

    @Test func `the folder is created, and those above it`() async throws {
        let server = try Self.echoing()
        let path = folder.path("new/er")
        let outcome = try await run("downloader", ["--output", path, server.url + "/x"])
        #expect(outcome.ending == .exit(0))
        #expect(content(of: path + "/x") == Array("/x".utf8))
        unlink(path + "/x")
        rmdir(path)
        rmdir(folder.path("new"))
    }

    // MARK: Results

    @Test func `one failure of several is an error, and leaves nothing`() async throws {
        let server = try TestServer.responding { head, _ in
            head.hasPrefix("GET /missing") ? response("404 Not Found", body: "?") : response(body: "hello")
        }
        let outcome = try await download(["a", "missing", "b"].map { server.url + "/" + $0 })
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "downloader: GET \(server.url)/missing: response: the status is 404\n")
        #expect(outcome.output.split(separator: "\n").count == 2)
        #expect(folder.names.sorted() == ["a", "b"])
    }

    @Test func `a line of JSON says what became of each download`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello\n") }
        let outcome = try await download(["--json", "--checksum", server.url + "/a"])
        #expect(outcome.ending == .exit(0))
        #expect(outcome.keys == ["url", "file", "bytes", "seconds", "status", "sha256", "error"])
        #expect(outcome["bytes"] == 6)
        #expect(outcome["status"] == 200)
        #expect(
            outcome.output.contains(
                #""sha256":"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03""#))
        #expect(outcome.output.contains(#""error":null"#))
        let failed = try await download(["--json", "--checksum", "--retries", "0", "http://127.0.0.1:1/b"])
        #expect(failed.ending == .exit(1))
        #expect(
            failed.output.contains(
                #""status":null,"sha256":null,"error":"GET http://127.0.0.1:1/b: connect:"#))
    }

    @Test func `checksums have the form of sha256sum`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello\n") }
        let outcome = try await download(["--checksum", server.url + "/a"])
        let sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
        #expect(outcome.output == "\(sum)  \(folder.path("a"))\n")
    }

    @Test func `no more downloads run than are allowed`() async throws {
        let (running, most) = (Shared(0), Shared(0))
        let server = try TestServer { peer, _ in
            while peer.readHead() != nil {
                let count = running.update { running in
                    running += 1
                    return running
                }
                most.update { $0 = max($0, count) }
                sched_yield()
                running.update { $0 -= 1 }
                peer.send(response(body: "x"))
            }
        }
        let urls = (0..<20).map { "\(server.url)/\($0)" }
        #expect(try await download(["--max-concurrent", "2"] + urls).ending == .exit(0))
        #expect(most.value <= 2)
        #expect(folder.names.count == 20)
    }

    // MARK: Cut and resumed

    @Test func `a download that is cut is tried again where it ended`() async throws {
        let server = try Self.cutting()
        #expect(try await download(["--retries", "1", server.url + "/x"]).ending == .exit(0))
        #expect(text("x") == "hello world")
        #expect(folder.names == ["x"])
    }

    @Test func `a download that cannot be resumed leaves nothing`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        }
        #expect(try await download(["--retries", "0", server.url + "/x"]).ending == .exit(1))
        #expect(folder.names == [])
    }

    @Test(arguments: [true, false])
    func `what an interrupted download has received is used if that is wanted`(resumes: Bool) async throws {
        let gate = Answer<Bool>()
        let (server, path) = (try Self.cutting { _ = gate.wait() }, folder.path("x.part"))
        let outcome = try await download([server.url + "/x"]) { child in
            waitUntil { access(path, F_OK) == 0 }
            child.send(SIGINT)
            return child.readOutput()
        }
        gate.give(true)
        #expect(outcome.ending == .exit(128 + SIGINT))
        #expect(outcome.errors == "downloader: interrupted; --resume goes on with what is there\n")
        #expect(text("x.part") == "hello")
        #expect(folder.names.sorted() == ["x.part", "x.part.validator"])
        #expect(try await download((resumes ? ["--resume"] : []) + [server.url + "/x"]).ending == .exit(0))
        #expect(text("x") == "hello world")
        #expect(folder.names == ["x"])
        #expect(server.requests.all.last?.contains("Range: bytes=5-") == resumes)
    }

    @Test func `an interruption before the first byte says nothing of resuming`() async throws {
        let (requested, gate) = (Answer<Bool>(), Answer<Bool>())
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            requested.give(true)
            _ = gate.wait()
        }
        let outcome = try await download([server.url + "/x"]) { child in
            _ = requested.wait()
            child.send(SIGINT)
            return child.readOutput()
        }
        gate.give(true)
        #expect(outcome.ending == .exit(128 + SIGINT))
        #expect(outcome.errors == "downloader: interrupted\n")
    }

    @Test func `a second run leaves alone what the first one is downloading`() async throws {
        let (begun, gate) = (Answer<Bool>(), Answer<Bool>())
        let server = try Self.cutting {
            begun.give(true)
            _ = gate.wait()
        }
        let part = folder.path("x.part")
        let second = Shared<Outcome?>(nil)
        let first = try await download([server.url + "/x"]) { [folder] child in
            _ = begun.wait()
            waitUntil { access(part, F_OK) == 0 }
            let other = try Child("downloader", ["--output", folder.path.string, server.url + "/x"])
            let errors = other.readErrors()
            second.value = Outcome(ending: other.wait(), output: "", errors: errors)
            gate.give(true)
            return child.readOutput()
        }
        #expect(second.value?.ending == .exit(1))
        #expect(second.value?.errors.contains("x.part: Device or resource busy") == true)
        #expect(first.ending == .exit(0))
        #expect(text("x") == "hello world")
    }

    @Test func `an empty file is saved`() async throws {
        let server = try TestServer.responding { _, _ in response() }
        #expect(try await download([server.url + "/x"]).ending == .exit(0))
        #expect(text("x") == "")
    }

    @Test func `a partial file that is the whole one is not downloaded again`() async throws {
        let server = try TestServer.responding { head, _ in
            guard head.contains("Range: bytes=11-") else { return response(body: "hello again") }
            return "HTTP/1.1 416 Range Not Satisfiable\r\nETag: \"1\"\r\nContent-Range: bytes */11\r\n"
                + "Content-Length: 5\r\n\r\nsorry"
        }
        _ = try folder.file("hello world".utf8, name: "x.part")
        _ = try folder.file("\"1\"".utf8, name: "x.part.validator")
        let outcome = try await download(["--resume", "--json", server.url + "/x"])
        #expect(outcome.ending == .exit(0))
        #expect(outcome["bytes"] == 11)
        #expect(text("x") == "hello world")
        #expect(folder.names == ["x"])
    }

    @Test(arguments: 4...40)
    func `few descriptors are enough, or an error in a sentence`(limit: Int) async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let arguments = "--retries 0 --checksum --output \(folder.path) \(server.url)/x"
        let command = "ulimit -n \(limit) && exec \(Child.folder)/downloader \(arguments)"
        let outcome = try await run("/bin/sh", ["-c", command])
        if outcome.ending == .exit(0) {
            #expect(text("x") == "hello")
        } else {
            #expect(outcome.ending == .exit(1))
            #expect(outcome.errors.contains("Too many open files"))
        }
    }

    @Test(arguments: [8_000, 20_000, 60_000])
    func `little memory is enough, or an error in a sentence`(kilobytes: Int) async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let arguments = "--checksum --output \(folder.path) \(server.url)/x"
        let command = "ulimit -d \(kilobytes) && exec \(Child.folder)/downloader \(arguments)"
        let outcome = try await run("/bin/sh", ["-c", command])
        #expect(outcome.ending == .exit(0) || outcome.errors.contains("Cannot start threads: "))
    }

    @Test(.enabled(if: Nginx.isAvailable, "nginx and openssl are installed or unpacked"))
    func `a large file that was interrupted is resumed and has the right checksum`() async throws {
        let (server, part) = (try Nginx.shared.get(), folder.path("zeros.part"))
        let interrupted = try await download([server.plain + "/slow/zeros"]) { child in
            waitUntil { content(of: part)?.isEmpty == false }
            child.send(SIGINT)
            return child.readOutput()
        }
        #expect(interrupted.ending == .exit(128 + SIGINT))
        let outcome = try await download(["--resume", "--json", "--checksum", server.plain + "/zeros"])
        #expect(outcome.ending == .exit(0))
        #expect(outcome["status"] == 206)
        #expect(outcome["bytes"] == 50_000_000)
        let sum = try await run("/usr/bin/sha256sum", [server.folder.appending("zeros").string])
        #expect(outcome.output.contains("\"sha256\":\"\(sum.output.prefix(64))\""))
    }

    @Test func `a file of twice the memory that is allowed is whole`() async throws {
        var random = SeededGenerator(seed: 3)
        let block = (0..<1_000_003).map { _ in UInt8.random(in: 0...255, using: &random) }
        let count = 256
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(count * block.count)\r\n\r\n")
            for _ in 0..<count { peer.send(block) }
        }
        let arguments = "--json --checksum --output \(folder.path) \(server.url)/large"
        let command = "ulimit -d 131072 && exec \(Child.folder)/downloader \(arguments)"
        let outcome = try await run("/bin/sh", ["-c", command])
        #expect(outcome.ending == .exit(0))
        #expect(outcome["bytes"] == Double(count * block.count))
        let sum = try await run("/usr/bin/sha256sum", ["-"], input: .pipe) { child in
            for _ in 0..<count { child.write(block) }
            child.closeInput()
            return child.readOutput()
        }
        #expect(outcome.output.contains("\"sha256\":\"\(sum.output.prefix(64))\""))
    }

    @Test func `a signal ends downloads that have not started`() async throws {
        let (began, gate) = (Answer<Bool>(), Answer<Bool>())
        let server = try TestServer { peer, _ in
            began.give(true)
            _ = gate.wait()
        }
        let urls = (0..<10).map { "\(server.url)/\($0)" }
        let outcome = try await download(["--json", "--max-concurrent", "1"] + urls) { child in
            _ = began.wait()
            child.send(SIGTERM)
            return child.readOutput()
        }
        gate.give(true)
        #expect(outcome.ending == .exit(128 + SIGTERM))
        #expect(outcome.output.split(separator: "\n").count { !$0.contains(#""error":null"#) } == 10)
        #expect(folder.names == [])
    }

    // MARK: Figures

    @Test func `the rate is of the last seconds, without what was there before`() {
        var rate = Rate()
        let start = Deadline.now
        func note(_ bytes: Int, after seconds: Int) {
            rate.note(bytes, at: start.advanced(by: .seconds(seconds)))
        }
        note(0, after: 0)
        note(5_000_000, after: 1)
        #expect(rate.value == 0)
        note(5_001_000, after: 2)
        note(5_001_500, after: 3)
        #expect(rate.value == 750)
        for second in 4...8 { note(5_001_500, after: second) }
        #expect(rate.value == 0)
        // Begun anew.
        note(100, after: 9)
        #expect(rate.value == 0)
        note(300, after: 10)
        #expect(rate.value == 200)
    }

    // MARK: Standard output

    @Test func `a closed pipe is not an error, and a closed or full output is`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let closed = try await download([server.url + "/a"], output: .closed)
        #expect(closed.ending == .exit(1))
        #expect(closed.errors.hasSuffix("Bad file descriptor\n"))
        let full = try await download([server.url + "/b"], output: .path("/dev/full"))
        #expect(full.ending == .exit(1))
        #expect(full.errors.hasSuffix("No space left on device\n"))
        let pipe = try await download([server.url + "/c"]) { child in
            child.closeOutput()
            return ""
        }
        #expect(pipe.ending == .exit(0))
        #expect(["a", "b", "c"].map(text) == ["hello", "hello", "hello"])
    }

    @Test(arguments: [
        [], ["ftp://host/x"], ["host/x"], ["--retries", "-1", "http://x/"],
        ["--max-concurrent", "0", "http://x/"],
    ])
    func `invalid arguments are rejected`(arguments: [String]) async throws {
        #expect(try await run("downloader", arguments).ending == .exit(64))
    }

    @Test func `a folder that cannot be made is an error`() async throws {
        let outcome = try await run(
            "downloader", ["--output", "/dev/null/folder", "http://127.0.0.1:1/x"])
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors.contains("/dev/null/folder"))
    }
}
