import CReactorTestSupport
import Glibc
import Reactor
import ReactorHTTP
import ReactorTestSupport
import ReactorTesting
import Testing

/// What libcurl's interface makes easy to get wrong.
@Suite(.runLoop) struct TrapTests {
    /// Counts bytes, and the most of them in one pass of the calling thread's loop.
    private final class PassCount: Sendable {
        let total = Shared(0)
        let most = Shared(0)
        private let inPass = Shared(0)

        init() {
            let observer = RunLoop.Observer(for: .beforeTimers) { [inPass] _, _ in inPass.value = 0 }
            RunLoop.current.add(observer, forMode: .default)
        }

        func note(_ bytes: [UInt8]) {
            total.update { $0 += bytes.count }
            inPass.update { $0 += bytes.count }
            most.update { [count = inPass.value] in $0 = max($0, count) }
        }
    }

    @Test func `a pass of the loop receives a bounded number of bytes`() throws {
        let (size, count) = (64 << 20, PassCount())
        let server = try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            let piece = [UInt8](repeating: 97, count: 1 << 20)
            for _ in 0..<size >> 20 { peer.send(piece) }
        }
        let session = HTTPSession { $0.bytesInFlight = size }
        #expect(session.run(HTTPRequest(server.url), to: .pieces(count.note)).kind == nil)
        #expect(count.total.value == size)
        #expect(count.most.value <= 8 << 20)
    }

    @Test func `a pass of a loop that receives events delivers a bounded number of bytes`() throws {
        let (size, count, loop) = (12 << 20, PassCount(), RunLoop.current)
        let server = try TestServer.sized(size)
        let destination = HTTPDestination.pieces { bytes in
            count.note(bytes)
            if count.total.value == size { loop.stop() }
        }
        try withNetwork({ $0.bytesInFlight = 2 * size }) { session in
            let launch = session.launch(
                HTTPRequest(server.url), to: destination, delivery: .runLoop(loop, modes: [.default]))
            launch.waitForBytes(size)
            loop.run { count.total.value < size }
        }
        #expect(count.most.value <= 4 << 20)
    }

    @Test func `a body of which one read decodes to more than the consumer has room for arrives whole`()
        throws
    {
        let (bomb, count, largest) = (try bomb(megabytes: 20), Shared(0), Shared(0))
        let server = try Self.server(of: bomb, encoding: "gzip")
        let destination = HTTPDestination.pieces { bytes in
            count.update { $0 += bytes.count }
            largest.update { $0 = max($0, bytes.count) }
        }
        let session = HTTPSession { $0.bytesInFlight = 65_536 }
        #expect(session.run(HTTPRequest(server.url), to: destination).kind == nil)
        #expect(count.value == 20_000_000)
        #expect(largest.value <= 131_072)
    }

    @Test func `a body of which one read decodes to too much is too large`() throws {
        let server = try Self.server(of: bomb(megabytes: 70, times: 2), encoding: "gzip, gzip")
        let session = HTTPSession { $0.bytesInFlight = 65_536 }
        let outcome = session.run(HTTPRequest(server.url), to: .handler { _ in })
        #expect(outcome.kind == .bodyTooLarge(limit: 64 << 20))
    }

    private static func server(of body: [UInt8], encoding: String) throws -> TestServer {
        try TestServer { peer, _ in
            guard peer.readHead() != nil else { return }
            peer.send(
                "HTTP/1.1 200 OK\r\nContent-Encoding: \(encoding)\r\nContent-Length: \(body.count)\r\n\r\n")
            peer.send(body)
            peer.waitForEnd()
        }
    }

    @Test(.enabled(if: Nginx.isAvailable)) func `a server that resets a TLS connection raises no signal`()
        throws
    {
        let server = try Nginx.shared.get()
        let session = HTTPSession {
            $0.trustRoots = server.certificate
            $0.versions = .http1
        }
        let body = HTTPRequest.Body.bytes([UInt8](repeating: 97, count: 16 << 20))
        for _ in 0..<3 {
            let outcome = session.run(HTTPRequest(server.secure + "/refused", method: "PUT", body: body))
            if case .success(let response) = outcome { #expect(response.status == 413) }
        }
    }

    // MARK: Processes of their own

    @Test func `running out of descriptors is an error with its errno`() async {
        await #expect(processExitsWith: .success) {
            let server = try TestServer.sized(5)
            try await onItsOwnThread {
                let session = HTTPSession()
                precondition(session.run(server.url).body == "xxxxx")
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                let next = dup(0)
                close(next)
                limit.rlim_cur = rlim_t(next)
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                let error = session.run("http://127.0.0.1:1/").error
                precondition(error?.kind == .connect && error?.errno == .tooManyOpenFiles)
            }
        }
    }

    /// With HTTP/2, libcurl names one transfer of a socket.
    @Test(.enabled(if: Nginx.isAvailable))
    func `all transfers of a connection that cannot be watched fail`() async {
        await #expect(processExitsWith: .success) {
            let server = try Nginx.shared.get()
            try await onItsOwnThread {
                let session = HTTPSession {
                    $0.trustRoots = server.certificate
                    $0.maxConnectionsPerHost = 1
                }
                precondition(session.run(server.secure + "/hello.txt").body == "hello\n")
                guard reactor_test_refuse_epoll_additions() else { return }
                let launches = (0..<5).map { _ in session.launch(server.secure + "/bytes.bin") }
                for launch in launches {
                    let error = launch.wait().error
                    precondition(error?.kind == .connect && error?.errno == .noMemory)
                }
            }
        }
    }

    @Test(arguments: ["length", "maxConnectionsPerHost", "buffer size", "HTTPBody"])
    func `a limit that cannot be, and a second iteration of a body, trap`(name: String) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [name = name as String] in
            switch name {
            case "length": _ = HTTPRequest.Body.stream(InputStream(data: []), length: -1)
            case "maxConnectionsPerHost": _ = HTTPSession { $0.maxConnectionsPerHost = 0 }
            case "buffer size":
                _ = HTTPSession().startReading(HTTPRequest("http://127.0.0.1:1/"), bufferSize: 0)
            default:
                let server = try TestServer.sized(5)
                try await withRunLoopThread(name: "network") { thread in
                    let session = HTTPSession(on: thread.runLoop)
                    let (_, body) = try await session.response(for: HTTPRequest(server.url))
                    for try await _ in body {}
                    for try await _ in body {}
                }
            }
        }
        #expect(result.message.contains(name))
    }
}
