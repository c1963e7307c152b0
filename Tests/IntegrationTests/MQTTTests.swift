import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop, .enabled(if: ServerProgram.isAvailable("mosquitto"), "mosquitto is not installed"))
struct MQTTTests {
    /// Starts a server and calls `body` with it on a new thread.
    private func withMosquitto(_ body: @escaping @Sendable (Server) throws -> Void) async throws {
        try await onItsOwnThread {
            let server = try Server.mosquitto()
            defer { server.stop() }
            try body(server)
        }
    }

    private static func connect(
        _ name: String, to server: Server, will: MQTTClient.Message? = nil
    ) -> MQTTClient {
        let client = MQTTClient(port: server.port)
        client.connect(as: name, will: will)
        client.wait(for: .connectAcknowledgement)
        #expect(client.packets[0].body == Data([0, 0]))
        return client
    }

    @Test func `a subscriber receives messages in the order of publication`() async throws {
        try await withMosquitto { server in
            let (subscriber, publisher) = (Self.connect("a", to: server), Self.connect("b", to: server))
            subscriber.subscribe(to: "numbers/#")
            subscriber.wait(for: .subscribeAcknowledgement)
            for number in 0..<200 {
                publisher.publish(Data("\(number)".utf8), to: "numbers/\(number % 3)", isAcknowledged: true)
            }
            publisher.wait(for: .publishAcknowledgement, 200)
            subscriber.wait(for: .publish, 200)
            #expect(
                subscriber.messages
                    == (0..<200).map {
                        MQTTClient.Message(topic: "numbers/\($0 % 3)", payload: Data("\($0)".utf8))
                    })
            for client in [subscriber, publisher] { client.disconnect() }
        }
    }

    @Test func `a large message arrives unchanged`() async throws {
        try await withMosquitto { server in
            let client = Self.connect("large", to: server)
            client.subscribe(to: "large")
            client.wait(for: .subscribeAcknowledgement)
            let payload = Data((0..<1_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
            client.publish(payload, to: "large")
            client.wait(for: .publish)
            #expect(client.messages == [MQTTClient.Message(topic: "large", payload: payload)])
            client.disconnect()
        }
    }

    @Test func `a timer on the loop keeps the connection alive`() async throws {
        try await withMosquitto { server in
            let client = Self.connect("alive", to: server)
            let timer = Timer.scheduled(every: .milliseconds(1)) { _ in client.ping() }
            client.wait(for: .pingResponse, 10)
            timer.invalidate()
            client.disconnect()
        }
    }

    @Test func `the server closes the connection after a disconnect packet`() async throws {
        try await withMosquitto { server in
            let client = Self.connect("disconnecting", to: server)
            var hasEnded = false
            client.connectionDidEnd = { _ in hasEnded = true }
            client.disconnect()
            runLoop { hasEnded }
        }
    }

    @Test func `the server publishes the will of a client that closes without a disconnect packet`()
        async throws
    {
        try await withMosquitto { server in
            let watcher = Self.connect("watcher", to: server)
            watcher.subscribe(to: "wills")
            watcher.wait(for: .subscribeAcknowledgement)
            let will = MQTTClient.Message(topic: "wills", payload: Data("gone".utf8))
            let client = Self.connect("closing", to: server, will: will)
            client.close()
            watcher.wait(for: .publish)
            #expect(watcher.messages == [will])
            watcher.disconnect()
        }
    }
}
