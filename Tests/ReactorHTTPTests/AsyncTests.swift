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

    /// Sends a body without an end.
    private static func endless() throws -> TestServer {
        try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\n\r\n")
            while peer.send([UInt8](repeating: 97, count: 65_536)) {}
        }
    }

    @Test func `a response is loaded into memory`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        let answer = try await withSession { try await $0.load(HTTPRequest(server.url)) }
        #expect(answer.body == Array("hello".utf8))
    }

    @Test func `a body is a sequence of pieces`() async throws {
        let text = String(repeating: "x", count: 3_000_000)
        let server = try TestServer.responding { _, _ in response(body: text) }
        let count = try await withSession { session in
            let (response, body) = try await session.response(for: HTTPRequest(server.url))
            #expect(response.contentLength == text.utf8.count)
            var count = 0
            for try await piece in body { count += piece.count }
            #expect(body.transfer.progress.bytesReceived == count)
            return count
        }
        #expect(count == text.utf8.count)
    }

    @Test func `an error is thrown where the body is cut`() async throws {
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        }
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
        let folder = TemporaryFolder()
        let server = try TestServer.responding { _, _ in
            response(body: String(repeating: "x", count: 100_000))
        }
        let path = folder.path.appending("file")
        let last = try await withSession { session in
            var last: HTTPTransfer.Progress?
            try await session.download(HTTPRequest(server.url), to: path) { last = $0 }
            return last
        }
        #expect(last?.bytesReceived == 100_000)
        #expect(last?.bytesExpected == 100_000)
        #expect(content(of: path.string)?.count == 100_000)
    }

    @Test func `cancelling the task cancels its transfer`() async throws {
        let server = try Self.endless()
        try await withSession { session in
            let began = Answer<Bool>()
            let task = Task {
                let (_, body) = try await session.response(for: HTTPRequest(server.url))
                for try await _ in body { began.give(true) }
            }
            try await onItsOwnThread { _ = began.wait() }
            task.cancel()
            let error = await #expect(throws: HTTPError.self) { try await task.value }
            #expect(error?.kind == .cancelled)
        }
    }

    @Test func `a task that was cancelled before gets an error`() async throws {
        let server = try Self.endless()
        try await withSession { session in
            let task = Task {
                withUnsafeCurrentTask { $0?.cancel() }
                _ = try await session.load(HTTPRequest(server.url))
            }
            let error = await #expect(throws: HTTPError.self) { try await task.value }
            #expect(error?.kind == .cancelled)
        }
    }

    @Test func `leaving the body cancels its transfer`() async throws {
        let closed = Answer<Bool>()
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            peer.send("HTTP/1.1 200 OK\r\n\r\n")
            while peer.send([UInt8](repeating: 97, count: 65_536)) {}
            closed.give(true)
        }
        try await withSession { session in
            _ = try await session.response(for: HTTPRequest(server.url))
            try await onItsOwnThread { _ = closed.wait() }
        }
    }

    @Test func `a body that is cancelled does not end without an error`() async throws {
        let server = try TestServer.responding { _, _ in response(body: "hello") }
        try await withSession { session in
            let (_, body) = try await session.response(for: HTTPRequest(server.url))
            // The loop has done all for the first transfer when it has completed a later one.
            for _ in 0..<2 { _ = try await session.load(HTTPRequest(server.url)) }
            body.transfer.cancel()
            let error = await #expect(throws: HTTPError.self) { for try await _ in body {} }
            #expect(error?.kind == .cancelled)
        }
    }

    @Test func `a body is iterated once`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let server = try TestServer.responding { _, _ in response(body: "hello") }
            try await withRunLoopThread(name: "network") { thread in
                let session = HTTPSession(on: thread.runLoop)
                let (_, body) = try await session.response(for: HTTPRequest(server.url))
                for try await _ in body {}
                for try await _ in body {}
            }
        }
        #expect(result.message.contains("An HTTPBody is iterated once"))
    }

    @Test func `a body's stream is a sequence of chunks`() async throws {
        let server = try TestServer.responding { _, _ in
            response(body: String(repeating: "x", count: 300_000))
        }
        let count = try await withSession { session in
            let (stream, _) = session.startReading(HTTPRequest(server.url))
            var count = 0
            for try await chunk in stream.chunks { count += chunk.count }
            return count
        }
        #expect(count == 300_000)
    }
}
