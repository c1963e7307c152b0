import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct AsyncTests {
    /// Calls `body` with a session on a thread of its own.
    private func withSession<Result: Sendable>(_ body: (HTTPSession) async throws -> Result) async throws
        -> Result
    {
        try await withRunLoopThread(name: "network") { thread in
            try await body(HTTPSession(on: thread.runLoop))
        }
    }

    @Test func `a body is loaded into memory, or read as a sequence of pieces or chunks`() async throws {
        let (server, size) = (try TestServer.sized(500_000), 500_000)
        let request = HTTPRequest(server.url)
        try await withSession { session in
            #expect(try await session.load(request).body.count == size)
            let (response, body) = try await session.response(for: request)
            #expect(response.contentLength == size)
            var count = 0
            for try await piece in body { count += piece.count }
            #expect(count == size && body.transfer.progress.bytesReceived == size)
            let (stream, _) = session.startReading(request)
            for try await chunk in stream.chunks { count -= chunk.count }
            #expect(count == 0)
        }
    }

    @Test func `an error is thrown where the body is cut`() async throws {
        let server = try TestServer.sending("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        try await withSession { session in
            let (_, body) = try await session.response(for: HTTPRequest(server.url))
            var bytes: [UInt8] = []
            let error = await #expect(throws: HTTPError.self) {
                for try await piece in body { bytes += piece }
            }
            #expect(error?.kind == .truncated)
            #expect(bytes == Array("abc".utf8))
        }
    }

    @Test func `a download reports its progress`() async throws {
        let (server, folder) = (try TestServer.sized(100_000), TemporaryFolder())
        let path = folder.path.appending("file")
        let last = try await withSession { session in
            var last: HTTPTransfer.Progress?
            try await session.download(HTTPRequest(server.url), to: path) { last = $0 }
            return last
        }
        #expect(last?.bytesReceived == 100_000 && last?.bytesExpected == 100_000)
        #expect(content(of: path.string)?.count == 100_000)
    }

    @Test(arguments: ["before", "meanwhile"])
    func `cancelling the task cancels its transfer`(moment: String) async throws {
        let server = try TestServer.endless()
        try await withSession { session in
            let (started, starts) = AsyncStream.makeStream(of: Void.self)
            let task = Task {
                if moment == "before" { withUnsafeCurrentTask { $0?.cancel() } }
                let (_, body) = try await session.response(for: HTTPRequest(server.url))
                for try await _ in body { starts.finish() }
            }
            if moment == "meanwhile" {
                for await _ in started {}
                task.cancel()
            }
            await #expect(throws: CancellationError.self) { try await task.value }
        }
    }

    @Test(arguments: ["nonsense", "http://127.0.0.1:1/"])
    func `a cancelled task throws a CancellationError, whatever its transfer fails with`(url: String)
        async throws
    {
        try await withSession { session in
            let task = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                _ = try await session.load(HTTPRequest(url))
            }
            await #expect(throws: CancellationError.self) { try await task.value }
        }
    }

    @Test func `leaving the body cancels its transfer`() async throws {
        let closed = Answer<Bool>()
        let server = try TestServer.endless(closed: closed)
        try await withSession { session in
            _ = try await session.response(for: HTTPRequest(server.url))
            #expect(closed.wait())
        }
    }

    @Test func `a body that is cancelled does not end without an error`() async throws {
        let server = try TestServer.sized(5)
        try await withSession { session in
            let (_, body) = try await session.response(for: HTTPRequest(server.url))
            // The loop has done all for the first transfer when it has completed a later one.
            for _ in 0..<2 { _ = try await session.load(HTTPRequest(server.url)) }
            body.transfer.cancel()
            let error = await #expect(throws: HTTPError.self) { for try await _ in body {} }
            #expect(error?.kind == .cancelled)
        }
    }
}
