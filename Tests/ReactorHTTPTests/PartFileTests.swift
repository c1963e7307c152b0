import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What downloads do with files that others have put where they write.
@Suite(.runLoop) struct PartFileTests {
    private let target = DownloadFolder()
    private var folder: TemporaryFolder { target.folder }

    private static func server() throws -> TestServer {
        try .responding { _, _ in response("200 OK", ["ETag: \"1\""], body: "hello") }
    }

    private func busy(_ operation: IOError.Operation) -> HTTPError.Kind {
        .write(IOError(operation, target.part.string, .resourceBusy))
    }

    private static func kind(of path: String) -> mode_t {
        var status = stat()
        return lstat(path, &status) == 0 ? status.st_mode & S_IFMT : 0
    }

    @Test(arguments: [false, true])
    func `a second download to a path fails while the first one runs`(resumes: Bool) throws {
        let server = try Self.server()
        let first = try target.run(resumes: resumes) {
            #expect(target.run(server, resumes: resumes).kind == busy(.open))
        }
        #expect(try first.get().status == 200)
        #expect(target.files == ["file": "hello world"])
    }

    @Test func `a download may be started again as soon as it is cancelled`() throws {
        let server = try TestServer { peer, _ in
            let isRest = peer.readHead()?.contains("Range: bytes=5-") == true
            let rest = response("206 Partial Content", ["Content-Range: bytes 5-10/11"], body: " world")
            peer.send(isRest ? rest : "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nETag: \"1\"\r\n\r\nhello")
            peer.waitForEnd()
        }
        let (session, file) = (HTTPSession(), HTTPDestination.file(target.path, resumes: true))
        let (first, second) = (Shared<HTTPTransfer?>(nil), Shared<Launch?>(nil))
        let launch = session.launch(HTTPRequest(server.url), to: file) { progress in
            guard progress.bytesReceived == 5, let transfer = first.update({ $0.take() }) else { return }
            transfer.cancel()
            second.value = session.launch(HTTPRequest(server.url), to: file)
        }
        first.value = launch.transfer
        #expect(launch.wait().kind == .cancelled)
        #expect(try #require(second.value).wait().get().status == 206)
        #expect(target.saved == "hello world")
    }

    @Test func `a part is resumed once the process that had locked it has died`() throws {
        try target.leavePart()
        let server = try TestServer.responding { head, _ in
            head.contains("Range: bytes=5-")
                ? response("206 Partial Content", ["Content-Range: bytes 5-10/11"], body: " world")
                : response(body: "hello world")
        }
        let other = try Child("/usr/bin/flock", ["--no-fork", target.part.string, "cat"], input: .pipe)
        other.write("locked\n")
        #expect(other.readLine() == "locked")
        for resumes in [false, true] { #expect(target.run(server, resumes: resumes).kind == busy(.open)) }
        other.send(SIGKILL)
        _ = other.wait()
        #expect(try target.run(server, resumes: true).get().status == 206)
        #expect(target.saved == "hello world")
    }

    @Test(arguments: [false, true])
    func `a file that has taken the part's place does not get the download's name`(isThere: Bool) throws {
        let outcome = try target.run(resumes: true) {
            unlink(target.part.string)
            if isThere { _ = try folder.file("foreign".utf8, name: "file.part") }
        }
        #expect(outcome.kind == busy(.write))
        #expect(target.saved == nil)
        #expect(target.savedPart == (isThere ? "foreign" : nil))
    }

    @Test(arguments: ["file.part", "file.part.validator"], [false, true])
    func `a FIFO or a link in place of a part is not used or replaced`(name: String, isFIFO: Bool) throws {
        let (path, otherFolder) = (folder.path(name), TemporaryFolder())
        let other = try otherFolder.file("target".utf8)
        if isFIFO { _ = folder.fifo(name: name) } else { symlink(other.string, path) }
        let outcome = try target.run(Self.server(), resumes: true)
        if name == "file.part" {
            let errno: Errno = isFIFO ? .fileExists : .tooManySymbolicLinkLevels
            #expect(outcome.kind == .write(IOError(.open, path, errno)))
        } else {
            #expect(target.saved == "hello")
        }
        #expect(Self.kind(of: path) == (isFIFO ? S_IFIFO : S_IFLNK))
        #expect(DownloadFolder.text(of: other) == "target")
    }

    @Test func `a part with a second name is not written`() throws {
        let other = try folder.file("precious".utf8, name: "other")
        link(other.string, target.part.string)
        #expect(try target.run(Self.server(), resumes: true).get().status == 200)
        #expect(DownloadFolder.text(of: other) == "precious")
        #expect(target.saved == "hello")
    }

    @Test func `a download to a FIFO is written into it`() throws {
        let (server, fifo) = (try Self.server(), folder.fifo())
        #expect(
            target.run(server, to: fifo).kind
                == .write(IOError(.open, fifo.string, .noSuchAddressOrDevice)))
        let reader = try FileDescriptor.open(fifo, .readWrite, options: .nonBlocking)
        defer { try? reader.close() }
        symlink(fifo.string, target.path.string)
        // As /dev/stdout leads to a pipe.
        let other = FilePath("/proc/self/fd/\(reader.rawValue)")
        for path in [fifo, target.path, other] {
            #expect(try target.run(server, to: path, resumes: true).get().status == 200)
            var bytes = [UInt8](repeating: 0, count: 10)
            #expect(try bytes.withUnsafeMutableBytes { try reader.read(into: $0) } == 5)
        }
        #expect(target.names == ["fifo", "file"])
    }

    @Test(arguments: [("null", 3, nil), ("full", 7, Errno.noSpace)] as [(String, UInt, Errno?)])
    func `a download to a device is written into it`(name: String, minor: UInt, errno: Errno?) throws {
        let device = folder.path(name)
        // As /dev/null and /dev/full. Only root may make them, and not everywhere.
        guard mknod(device, S_IFCHR | 0o600, 0x100 | minor) == 0, access(device, W_OK) == 0,
            (try? FileDescriptor.open(device, .writeOnly).close()) != nil
        else { return }
        let outcome = try target.run(Self.server(), to: FilePath(device))
        #expect(outcome.kind == errno.map { .write(IOError(.write, device, $0)) })
        #expect(folder.names == [name])
    }

    @Test(arguments: [false, true])
    func `a download to a symbolic link replaces the file that it leads to`(isDangling: Bool) throws {
        let other = TemporaryFolder()
        if !isDangling { _ = try other.file("old".utf8) }
        symlink(other.path("file"), folder.path("first"))
        symlink("first", target.path.string)
        #expect(try target.run(Self.server()).get().status == 200)
        #expect(content(of: other.path("file")) == Array("hello".utf8))
        #expect(other.names == ["file"])
        #expect(target.names == ["file", "first"])
        #expect(Self.kind(of: target.path.string) == S_IFLNK)
    }
}
