import ReactorFoundation

/// A small MQTT 3.1.1 client.
final class MQTTClient: Connection {
    /// A control packet.
    struct Packet: Equatable {
        enum Kind: UInt8 {
            case connect = 1
            case connectAcknowledgement, publish, publishAcknowledgement, publishReceived, publishRelease
            case publishComplete, subscribe, subscribeAcknowledgement, unsubscribe, unsubscribeAcknowledgement
            case pingRequest, pingResponse, disconnect
        }

        let kind: Kind
        let flags: UInt8
        let body: Data
    }

    struct Message: Equatable {
        let topic: String
        let payload: Data
    }

    private(set) var packets: [Packet] = []
    private(set) var messages: [Message] = []
    private var lastIdentifier: UInt16 = 0

    // MARK: Sending

    /// Opens the connection and sends a connect packet.
    ///
    /// - Parameter will: The message that the server publishes if the connection closes without a disconnect
    ///   packet.
    func connect(as name: String, keepAlive: UInt16 = 60, will: Message? = nil) {
        open()
        let flags: UInt8 = will == nil ? 0x02 : 0x06
        var body = Self.string("MQTT") + [4, flags] + Self.number(keepAlive) + Self.string(name)
        if let will {
            body += Self.string(will.topic) + Self.number(UInt16(will.payload.count)) + will.payload
        }
        send(.connect, body)
    }

    func subscribe(to topic: String) { send(.subscribe, flags: 2, identifier() + Self.string(topic) + [1]) }

    /// Publishes a message, with quality of service 1 if `isAcknowledged` and 0 otherwise.
    func publish(_ message: Message, isAcknowledged: Bool = false) {
        let identifier = isAcknowledged ? identifier() : Data()
        let body = Self.string(message.topic) + identifier + message.payload
        send(.publish, flags: isAcknowledged ? 2 : 0, body)
    }

    func ping() { send(.pingRequest) }

    func disconnect() { send(.disconnect) }

    private func identifier() -> Data {
        lastIdentifier = max(1, lastIdentifier &+ 1)
        return Self.number(lastIdentifier)
    }

    private func send(_ kind: Packet.Kind, flags: UInt8 = 0, _ body: Data = Data()) {
        var packet = Data([kind.rawValue << 4 | flags])
        var length = body.count
        repeat {
            packet.append(UInt8(length % 128) | (length >= 128 ? 128 : 0))
            length /= 128
        } while length > 0
        send(packet + body)
    }

    private static func number(_ number: UInt16) -> Data { Data([UInt8(number >> 8), UInt8(number & 255)]) }

    private static func string(_ text: String) -> Data { number(UInt16(text.utf8.count)) + Data(text.utf8) }

    // MARK: Receiving

    /// The number of packets of `kind` received.
    func count(_ kind: Packet.Kind) -> Int { packets.count { $0.kind == kind } }

    /// Runs the loop until `wanted` packets of `kind` have arrived in all.
    func wait(for kind: Packet.Kind, _ wanted: Int = 1) { runLoop { count(kind) >= wanted } }

    override func bytesDidArrive() {
        while let packet = nextPacket() {
            packets.append(packet)
            if packet.kind == .publish { received(packet) }
        }
    }

    private func nextPacket() -> Packet? {
        let bytes = [UInt8](incoming.prefix(5))
        var (length, index) = (0, 1)
        repeat {
            guard index < bytes.count else { return nil }
            length += Int(bytes[index] & 127) << (7 * (index - 1))
            index += 1
        } while bytes[index - 1] >= 128
        guard incoming.count >= index + length, let kind = Packet.Kind(rawValue: bytes[0] >> 4) else {
            return nil
        }
        defer { incoming = Data(incoming.dropFirst(index + length)) }
        return Packet(kind: kind, flags: bytes[0] & 15, body: Data(incoming.dropFirst(index).prefix(length)))
    }

    private func received(_ packet: Packet) {
        let length = Int(packet.body[0]) << 8 | Int(packet.body[1])
        let topic = String(decoding: packet.body.dropFirst(2).prefix(length), as: UTF8.self)
        var rest = packet.body.dropFirst(2 + length)
        if packet.flags & 6 != 0 {
            send(.publishAcknowledgement, Data(rest.prefix(2)))
            rest = rest.dropFirst(2)
        }
        messages.append(Message(topic: topic, payload: Data(rest)))
    }
}
