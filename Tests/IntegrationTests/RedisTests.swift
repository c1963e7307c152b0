import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop, .enabled(if: ServerProgram.isAvailable("redis-server"), "redis-server is not installed"))
struct RedisTests {
    /// Starts a server and calls `body` with it on a new thread.
    private func withRedis(_ body: @escaping @Sendable (Server) throws -> Void) async throws {
        try await onItsOwnThread {
            let server = try Server.redis()
            defer { server.stop() }
            try body(server)
        }
    }

    private static func connect(_ server: Server) -> RedisClient {
        let client = RedisClient(port: server.port)
        client.open()
        return client
    }

    @Test func `commands receive replies, including errors`() async throws {
        try await withRedis { server in
            let client = Self.connect(server)
            client.call("PING")
            client.call("SET", "key", "value")
            client.call("GET", "key")
            client.call("GET", "no such key")
            client.call("NONSENSE")
            let replies = client.take(5)
            #expect(
                replies[...3] == [.status("PONG"), .status("OK"), .bytes(Data("value".utf8)), .bytes(nil)])
            if case .error = replies[4] {} else { Issue.record("\(replies[4]) is not an error") }
            client.close()
        }
    }

    @Test func `a thousand pipelined commands receive replies in order`() async throws {
        try await withRedis { server in
            let client = Self.connect(server)
            for _ in 0..<1000 { client.call("INCR", "counter") }
            #expect(client.take(1000) == (1...1000).map { .number($0) })
            client.close()
        }
    }

    @Test(arguments: [230_000, 5_000_000])
    func `a large value is stored and returned unchanged`(size: Int) async throws {
        try await withRedis { server in
            let client = Self.connect(server)
            let value = Data((0..<size).map { UInt8(truncatingIfNeeded: $0 &* 31) })
            client.call([Data("SET".utf8), Data("large".utf8), value])
            client.call("GET", "large")
            #expect(client.take(2) == [.status("OK"), .bytes(value)])
            client.close()
        }
    }

    @Test func `a subscriber receives published messages`() async throws {
        try await withRedis { server in
            let (subscriber, publisher) = (Self.connect(server), Self.connect(server))
            subscriber.call("SUBSCRIBE", "news")
            #expect(
                subscriber.take() == [
                    .array([.bytes(Data("subscribe".utf8)), .bytes(Data("news".utf8)), .number(1)])
                ])
            for number in 0..<100 { publisher.call("PUBLISH", "news", "\(number)") }
            let messages = subscriber.take(100)
            #expect(publisher.take(100).allSatisfy { $0 == .number(1) })
            #expect(
                messages
                    == (0..<100).map {
                        .array([
                            .bytes(Data("message".utf8)), .bytes(Data("news".utf8)),
                            .bytes(Data("\($0)".utf8)),
                        ])
                    })
            for client in [subscriber, publisher] { client.close() }
        }
    }

    @Test func `a client reconnects in the callback after the server closes the connection`() async throws {
        try await withRedis { server in
            let client = Self.connect(server)
            client.connectionDidEnd = { connection in
                connection.open()
                (connection as? RedisClient)?.call("PING")
            }
            client.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
            runLoop { client.openCount == 2 && client.replies.last == .status("PONG") }
            client.connectionDidEnd = nil
            client.close()
        }
    }

    @Test func `killing the server ends its connections`() async throws {
        try await withRedis { server in
            let client = Self.connect(server)
            client.call("PING")
            _ = client.take()
            var hasEnded = false
            client.connectionDidEnd = { _ in hasEnded = true }
            server.stop()
            runLoop { hasEnded }
            var isRefused = false
            client.connectionDidEnd = { _ in isRefused = true }
            client.open()
            runLoop { isRefused }
        }
    }
}
