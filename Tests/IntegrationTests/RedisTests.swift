import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop, .enabled(if: ServerProgram.isAvailable("redis-server"), "redis-server is not installed"))
struct RedisTests {
    private let server: ServerProgram

    init() throws {
        server = try ServerProgram("redis-server") { port in
            ["--port", "\(port)", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        }
    }

    private func connect() -> RedisClient {
        let client = RedisClient(port: server.port)
        client.open()
        return client
    }

    @Test func `a thousand pipelined commands receive replies in order, including errors`() {
        let client = connect()
        client.call("GET", "no such key")
        client.call("NONSENSE")
        for _ in 0..<1000 { client.call("INCR", "counter") }
        let replies = client.take(1002)
        #expect(replies[0] == .bytes(nil) && replies[2...] == (1...1000).map { .number($0) }[...])
        if case .error = replies[1] {} else { Issue.record("\(replies[1]) is not an error") }
    }

    @Test func `a large value is stored and returned unchanged`() {
        let (client, value) = (connect(), Data(String(repeating: "0123456789", count: 100_000).utf8))
        client.call([Data("SET".utf8), Data("large".utf8), value])
        client.call("GET", "large")
        #expect(client.take(2) == [.status("OK"), .bytes(value)])
    }

    @Test func `a subscriber receives published messages`() {
        func texts(_ words: String...) -> [RedisReply] { words.map { .bytes(Data($0.utf8)) } }
        let (subscriber, publisher) = (connect(), connect())
        subscriber.call("SUBSCRIBE", "news")
        #expect(subscriber.take() == [.array(texts("subscribe", "news") + [.number(1)])])
        for number in 0..<100 { publisher.call("PUBLISH", "news", "\(number)") }
        #expect(subscriber.take(100) == (0..<100).map { .array(texts("message", "news", "\($0)")) })
        #expect(publisher.take(100).allSatisfy { $0 == .number(1) })
    }

    @Test func `a client reconnects in the callback after the server closes the connection`() {
        let client = connect()
        client.connectionDidEnd = { [unowned client] in
            client.open()
            client.call("PING")
        }
        client.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no")
        client.run { client.openCount == 2 && client.replies.last == .status("PONG") }
    }

    @Test func `killing the server ends its connections, and refuses new ones`() {
        let client = connect()
        client.call("PING")
        #expect(client.take() == [.status("PONG")])
        var endCount = 0
        client.connectionDidEnd = { endCount += 1 }
        server.stop()
        client.run { endCount == 1 }
        client.open()
        client.run { endCount == 2 }
        #expect(client.openCount == 1)
    }
}
