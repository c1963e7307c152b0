import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Bodies of requests that are read from files of any kind.
@Suite(.runLoop) struct FileBodyTests {
    /// Answers a body that is sent in chunks, and calls `begin` before it is read.
    private static func receivingChunks(
        _ body: Answer<[UInt8]>, begin: @escaping @Sendable () -> Void = {}
    ) throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead()?.contains("Transfer-Encoding: chunked") == true else {
                body.give([])
                return
            }
            begin()
            var bytes: [UInt8] = []
            while !bytes.suffix(5).elementsEqual("0\r\n\r\n".utf8) {
                guard let more = peer.receive(upTo: 1), !more.isEmpty else { break }
                bytes += more
            }
            body.give(Array(bytes.split(separator: 13)[1].dropFirst()))
            peer.send(response())
        }
    }

    @Test(arguments: ["/proc/sys/kernel/ostype", "/sys/devices/system/cpu/online"])
    func `a file whose length only reading shows is sent as it is read`(path: String) async throws {
        guard let content = content(of: path) else { return }
        let body = Answer<[UInt8]>()
        let server = try Self.receivingChunks(body)
        try await onItsOwnThread {
            let request = HTTPRequest(server.url, method: "PUT", body: .file(FilePath(path)))
            #expect(HTTPSession().run(request).kind == nil)
            #expect(body.wait().elementsEqual(content.prefix { $0 != 13 }))
        }
    }

    @Test func `a FIFO is sent as it is read, and does not block the loop before it has a writer`()
        async throws
    {
        let (folder, body) = (TemporaryFolder(), Answer<[UInt8]>())
        let fifo = folder.fifo()
        let server = try Self.receivingChunks(body) {
            let writer = try? FileDescriptor.open(fifo, .writeOnly)
            _ = try? writer?.writeAll("hello".utf8)
            try? writer?.close()
        }
        try await onItsOwnThread {
            let request = HTTPRequest(server.url, method: "POST", body: .file(fifo))
            #expect(HTTPSession().run(request).kind == nil)
            #expect(body.wait() == Array("hello".utf8))
        }
    }

    @Test func `a request whose body was a FIFO is not sent again`() async throws {
        let (folder, heads) = (TemporaryFolder(), Trace())
        let fifo = folder.fifo()
        let server = try TestServer { peer, _ in
            guard let head = peer.readHead() else { return }
            heads(head)
            let writer = try? FileDescriptor.open(fifo, .writeOnly)
            _ = try? writer?.writeAll("hello".utf8)
            try? writer?.close()
        }
        let outcome = try await onItsOwnThread {
            let session = HTTPSession {
                $0.retries = 1
                $0.retryDelay = .zero
            }
            return session.run(HTTPRequest(server.url, method: "PUT", body: .file(fifo)))
        }
        #expect(outcome.kind == .connectionLost)
        #expect(heads.all.count == 1)
    }

    @Test func `an empty file is a body of no bytes, and a folder is none`() async throws {
        let (folder, server) = (TemporaryFolder(), try TestServer.responding { _, _ in response() })
        let file = try folder.file([])
        try await onItsOwnThread {
            let session = HTTPSession()
            #expect(session.run(HTTPRequest(server.url, method: "PUT", body: .file(file))).kind == nil)
            let kind = session.run(HTTPRequest(server.url, method: "PUT", body: .file(folder.path))).kind
            #expect(kind == .read(IOError(.open, folder.path.string, .isDirectory)))
        }
        #expect(server.requests.all.first?.contains("Content-Length: 0\r\n") == true)
        #expect(server.requests.all.count == 1)
    }
}
