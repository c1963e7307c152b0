import Reactor

/// A connection whose bytes are sent back.
///
/// The session reads only what the write buffer has room for. A client that does not receive its echo therefore uses no more
/// memory than the write buffer and the kernel's socket buffers.
final class EchoSession: ConnectionDelegate {
    private static let chunkSize = 16_384

    static func options(_ sharesPort: Bool) -> Listener.Options {
        Listener.Options(reusesPort: sharesPort, connection: .init(writeBufferSize: 65_536))
    }

    private(set) var byteCount = 0
    private(set) var messageCount = 0

    private let connection: Connection
    private let onClose: (EchoSession) -> Void
    private var isClosed = false

    init(_ connection: Connection, onClose: @escaping (EchoSession) -> Void) {
        (self.connection, self.onClose) = (connection, onClose)
    }

    func start() { connection.open(delegate: self) }

    /// Closes the connection. What was sent still arrives.
    func close() {
        guard !isClosed else { return }
        isClosed = true
        connection.close()
        onClose(self)
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .hasBytesAvailable, .hasSpaceAvailable: echo()
        case .endEncountered, .errorOccurred: close()
        default: break
        }
    }

    private func echo() {
        let bytes = connection.receive(upTo: min(connection.writableCount, Self.chunkSize))
        // None at the end, whose event follows.
        guard !bytes.isEmpty, (try? connection.send(bytes)) != nil else { return }
        byteCount += bytes.count
        messageCount += 1
    }
}

extension EchoSession: Hashable {
    static func == (left: EchoSession, right: EchoSession) -> Bool { left === right }

    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
