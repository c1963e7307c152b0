import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage

/// A client that sends a text, and records what it gets.
final class Caller: ConnectionDelegate {
    let connection: Connection
    private let text: String
    private(set) var received: [UInt8] = []
    private(set) var chunkCount = 0
    private(set) var error: Errno?
    private(set) var hasOpened = false
    private(set) var hasEnded = false
    var onEvent: () -> Void = {}

    var answer: String { String(decoding: received, as: UTF8.self) }

    init(_ connection: Connection, sending text: String = "", forMode mode: RunLoop.Mode = .common) {
        (self.connection, self.text) = (connection, text)
        connection.open(delegate: self, forMode: mode)
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted:
            hasOpened = true
            try? connection.send(text)
        case .hasBytesAvailable:
            let bytes = connection.receive()
            chunkCount += 1
            received += bytes
        case .endEncountered: hasEnded = true
        case .errorOccurred(let error): self.error = (error as? IOError)?.errno
        default: break
        }
        onEvent()
    }
}

func listen(
    _ address: SocketAddress,
    _ handler: @escaping (Listener, Connection) -> Void = { $1.open(delegate: Echo()) }
) throws -> Listener {
    let listener = try Listener(address, handler: handler, acceptErrors: { _, _ in })
    try RunLoop.current.add(listener, forMode: .common)
    return listener
}

/// How many descriptors the process has open.
func openDescriptorCount() -> Int { (0..<1024).count { fcntl(CInt($0), F_GETFD) >= 0 } }
