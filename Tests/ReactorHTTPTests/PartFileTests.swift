import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What downloads do with files that others have put where they write.
@Suite(.runLoop) struct PartFileTests {
    private let folder = TemporaryFolder()
    private var path: FilePath { folder.path.appending("file") }
    private var part: FilePath { folder.path.appending("file.part") }

    private func download(_ url: String, to path: FilePath? = nil, resumes: Bool = false) async throws
        -> Outcome
    {
        let path = path ?? self.path
        return try await onItsOwnThread {
            HTTPSession().run(HTTPRequest(url), to: .file(path, resumes: resumes))
        }
    }

    private func busy(_ operation: IOError.Operation) -> HTTPError.Kind {
        .write(IOError(operation, part.string, .resourceBusy))
    }

    /// Sends "hello", and " world" once `gate` is open.
    private static func halting(until gate: Answer<Bool>) throws -> TestServer {
        try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\nETag: \"1\"\r\n\r\nhello")
            _ = gate.wait()
            peer.send(" world")
            peer.waitForEnd()
        }
    }

    /// Downloads a file, and calls `body` after its first bytes have been received.
    private func download(resumes: Bool, meanwhile body: @escaping @Sendable () throws -> Void) async throws
        -> Outcome
    {
        let (gate, received, outcome) = (Answer<Bool>(), Answer<Bool>(), Answer<Outcome>())
        let (server, thread) = (try Self.halting(until: gate), try RunLoopThread(name: "network"))
        return try await onItsOwnThread { [path] in
            defer { thread.stop() }
            HTTPSession(on: thread.runLoop).start(
                HTTPRequest(server.url), to: .file(path, resumes: resumes),
                progress: { if $0.bytesReceived == 5 { received.give(true) } }, completion: outcome.give)
            _ = received.wait()
            defer { gate.give(true) }
            try body()
            gate.give(true)
            return outcome.wait()
        }
    }

    @Test(arguments: [false, true])
    func `a second download to a path fails while the first one runs`(resumes: Bool) async throws {
        let server = try TestServer.responding { _, _ in response("200 OK", ["ETag: \"2\""], body: "other") }
        let second = Shared<HTTPError.Kind?>(nil)
        let first = try await download(resumes: resumes) { [path] in
            second.value = HTTPSession().run(HTTPRequest(server.url), to: .file(path, resumes: resumes)).kind
        }
        #expect(second.value == busy(.open))
        #expect(try first.get().status == 200)
        #expect(content(of: path.string) == Array("hello world".utf8))
        #expect(folder.names == ["file"])
    }

    @Test func `a download may be started again as soon as it is cancelled`() async throws {
        let gate = Answer<Bool>()
        let server = try TestServer { peer, _ in
            let isRest = peer.readHead()?.contains("Range: bytes=5-") == true
            let range =
                "HTTP/1.1 206 Partial Content\r\nContent-Length: 6\r\nContent-Range: bytes 5-10/11\r\n\r\n world"
            peer.send(isRest ? range : "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nETag: \"1\"\r\n\r\nhello")
            _ = gate.wait()
        }
        let outcome = try await onItsOwnThread { [path] in
            let (session, first, outcome) = (HTTPSession(), Shared<HTTPTransfer?>(nil), Shared<Outcome?>(nil))
            let file = HTTPDestination.file(path, resumes: true)
            first.value = session.start(
                HTTPRequest(server.url), to: file,
                progress: { progress in
                    guard progress.bytesReceived == 5, let transfer = first.update({ $0.take() }) else {
                        return
                    }
                    transfer.cancel()
                    session.start(HTTPRequest(server.url), to: file) {
                        outcome.value = $0
                        RunLoop.current.stop()
                    }
                }, completion: { _ in })
            RunLoop.current.run { outcome.value == nil }
            return outcome.value!
        }
        gate.give(true)
        #expect(try outcome.get().status == 206)
        #expect(content(of: path.string) == Array("hello world".utf8))
    }

    @Test func `a part is resumed once the process that had locked it has died`() async throws {
        _ = try folder.file("hello".utf8, name: "file.part")
        _ = try folder.file("\"1\"".utf8, name: "file.part.validator")
        let server = try TestServer.responding { head, _ in
            head.contains("Range: bytes=5-")
                ? response("206 Partial Content", ["Content-Range: bytes 5-10/11"], body: " world")
                : response(body: "hello world")
        }
        let other = try Child("/usr/bin/flock", ["--no-fork", part.string, "cat"], input: .pipe)
        other.write("locked\n")
        #expect(other.readLine() == "locked")
        #expect(try await download(server.url).kind == busy(.open))
        #expect(try await download(server.url, resumes: true).kind == busy(.open))
        other.send(SIGKILL)
        _ = other.wait()
        #expect(try await download(server.url, resumes: true).get().status == 206)
        #expect(content(of: path.string) == Array("hello world".utf8))
    }

    @Test(arguments: [false, true])
    func `a file that has taken the part's place does not get the download's name`(isThere: Bool) async throws
    {
        let outcome = try await download(resumes: true) { [folder, part] in
            unlink(part.string)
            if isThere { _ = try folder.file("foreign".utf8, name: "file.part") }
        }
        #expect(outcome.kind == busy(.write))
        #expect(content(of: path.string) == nil)
        #expect(content(of: part.string) == (isThere ? Array("foreign".utf8) : nil))
    }

    @Test(arguments: ["file.part", "file.part.validator"], [false, true])
    func `a FIFO or a symbolic link in place of a part or its validator is not used or replaced`(
        name: String, isFIFO: Bool
    ) async throws {
        let server = try TestServer.responding { _, _ in response("200 OK", ["ETag: \"1\""], body: "hello") }
        let (other, otherFolder) = (folder.path(name), TemporaryFolder())
        let target = try otherFolder.file("target".utf8)
        if isFIFO { _ = folder.fifo(name: name) } else { symlink(target.string, other) }
        let outcome = try await download(server.url, resumes: true)
        if name == "file.part" {
            let errno: Errno = isFIFO ? .fileExists : .tooManySymbolicLinkLevels
            #expect(outcome.kind == .write(IOError(.open, other, errno)))
        } else {
            #expect(content(of: path.string) == Array("hello".utf8))
        }
        var status = stat()
        #expect(lstat(other, &status) == 0 && status.st_mode & S_IFMT == (isFIFO ? S_IFIFO : S_IFLNK))
        #expect(content(of: target.string) == Array("target".utf8))
    }

    @Test func `a part with a second name is not written`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let other = try folder.file("precious".utf8, name: "other")
        link(other.string, part.string)
        #expect(try await download(server.url, resumes: true).get().status == 200)
        #expect(content(of: other.string) == Array("precious".utf8))
        #expect(content(of: path.string) == Array("hello".utf8))
    }

    @Test func `a download to a FIFO is written into it`() async throws {
        let server = try TestServer.responding { _, _ in response("200 OK", ["ETag: \"1\""], body: "hello") }
        let fifo = folder.fifo()
        #expect(
            try await download(server.url, to: fifo).kind
                == .write(IOError(.open, fifo.string, .noSuchAddressOrDevice)))
        let reader = try FileDescriptor.open(fifo, .readWrite, options: .nonBlocking)
        defer { try? reader.close() }
        symlink(fifo.string, path.string)
        // As /dev/stdout leads to a pipe.
        let other = FilePath("/proc/self/fd/\(reader.rawValue)")
        for path in [fifo, path, other] {
            #expect(try await download(server.url, to: path, resumes: true).get().status == 200)
            var bytes = [UInt8](repeating: 0, count: 10)
            #expect(try bytes.withUnsafeMutableBytes { try reader.read(into: $0) } == 5)
        }
        #expect(folder.names.sorted() == ["fifo", "file"])
    }

    @Test(arguments: [("null", 3, nil), ("full", 7, Errno.noSpace)] as [(String, UInt, Errno?)])
    func `a download to a device is written into it`(name: String, minor: UInt, errno: Errno?) async throws {
        let device = folder.path(name)
        // As /dev/null and /dev/full. Only root may make them, and not everywhere.
        guard mknod(device, S_IFCHR | 0o600, 0x100 | minor) == 0, access(device, W_OK) == 0,
            (try? FileDescriptor.open(device, .writeOnly).close()) != nil
        else { return }
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let outcome = try await download(server.url, to: FilePath(device))
        #expect(outcome.kind == errno.map { .write(IOError(.write, device, $0)) })
        #expect(folder.names == [name])
    }

    @Test(arguments: [false, true])
    func `a download to a symbolic link replaces the file that it leads to`(isDangling: Bool) async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let other = TemporaryFolder()
        if !isDangling { _ = try other.file("old".utf8) }
        symlink(other.path("file"), folder.path("first"))
        symlink("first", path.string)
        #expect(try await download(server.url).get().status == 200)
        #expect(content(of: other.path("file")) == Array("hello".utf8))
        #expect(other.names == ["file"])
        #expect(folder.names.sorted() == ["file", "first"])
        var status = stat()
        #expect(lstat(path.string, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK)
    }
}
