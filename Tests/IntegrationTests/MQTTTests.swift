import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop, .enabled(if: ServerProgram.isAvailable("mosquitto"), "mosquitto is not installed"))
struct MQTTTests {
    private let server: ServerProgram

    init() throws {
        let folder = TemporaryFolder()
        server = try ServerProgram("mosquitto") { port in
            let lines = "listener \(port) 127.0.0.1\nallow_anonymous true\nuser root\nlog_type none\n"
            return ["-c", try folder.file(lines.utf8).string]
        }
    }

    private func connect(
        _ name: String, subscribedTo topic: String? = nil, will: MQTTClient.Message? = nil
    ) -> MQTTClient {
        let client = MQTTClient(port: server.port)
        client.connect(as: name, will: will)
        client.wait(for: .connectAcknowledgement)
        #expect(client.packets[0].body == Data([0, 0]))
        if let topic {
            client.subscribe(to: topic)
            client.wait(for: .subscribeAcknowledgement)
        }
        return client
    }

    @Test func `a subscriber receives messages in the order of publication`() {
        let (subscriber, publisher) = (connect("a", subscribedTo: "numbers/#"), connect("b"))
        let messages = (0..<200).map {
            MQTTClient.Message(topic: "numbers/\($0 % 3)", payload: Data("\($0)".utf8))
        }
        for message in messages { publisher.publish(message, isAcknowledged: true) }
        publisher.wait(for: .publishAcknowledgement, 200)
        subscriber.wait(for: .publish, 200)
        #expect(subscriber.messages == messages)
    }

    @Test func `a large message arrives unchanged, while a timer keeps the connection alive`() {
        let client = connect("large", subscribedTo: "large")
        let timer = Timer.scheduled(every: .milliseconds(1)) { _ in client.ping() }
        let text = String(repeating: "0123456789", count: 50_000)
        let message = MQTTClient.Message(topic: "large", payload: Data(text.utf8))
        client.publish(message)
        client.wait(for: .publish)
        client.wait(for: .pingResponse, 10)
        timer.invalidate()
        #expect(client.messages == [message])
    }

    @Test func `the server publishes the will of a client that closes without a disconnect packet`() {
        let watcher = connect("watcher", subscribedTo: "wills")
        let wills = ["first", "second"].map { MQTTClient.Message(topic: "wills", payload: Data($0.utf8)) }
        let (orderly, closing) = (connect("orderly", will: wills[0]), connect("closing", will: wills[1]))
        var hasEnded = false
        orderly.connectionDidEnd = { _ in hasEnded = true }
        orderly.disconnect()
        runLoop { hasEnded }
        closing.close()
        watcher.wait(for: .publish)
        #expect(watcher.messages == [wills[1]])
    }
}
