import Reactor
import ReactorHTTP
import ReactorTestSupport
import Testing

@Suite struct RepetitionTests {
    @Test(arguments: [0, 2])
    func `a request is sent again as often as the configuration says`(retries: Int) async throws {
        let count = Shared(0)
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            count.value += 1
        }
        let outcome = try await onItsOwnThread { Self.session(retries).run(server.url) }
        #expect(outcome.kind == .connectionLost && count.value == retries + 1)
    }

    @Test func `a request that is not idempotent is sent once`() async throws {
        let count = Shared(0)
        let server = try TestServer { peer, _ in
            _ = peer.readHead()
            count.value += 1
        }
        let outcome = try await onItsOwnThread {
            var request = HTTPRequest(server.url)
            request.method = "POST"
            return Self.session(2).run(request)
        }
        #expect(outcome.kind == .connectionLost && count.value == 1)
    }

    @Test func `a body of as many bytes as the limit is whole`() async throws {
        let body = String(repeating: "x", count: 1_000)
        let server = try TestServer.responding { _, _ in response(body: body) }
        let outcome = try await onItsOwnThread {
            HTTPSession().run(HTTPRequest(server.url), to: .memory(limit: 1_000))
        }
        #expect(outcome.body == body)
    }

    private static func session(_ retries: Int) -> HTTPSession {
        HTTPSession {
            $0.retries = retries
            $0.retryDelay = .milliseconds(1)
        }
    }
}
