import Reactor

// Sends back what comes in, when there are bytes to read and there is room to write.
final class Session: StreamDelegate {
    private let connection: Listener.Connection
    private unowned let server: Server
    private var hasBytes = false
    private var hasSpace = false

    init(_ connection: Listener.Connection, of server: Server) {
        (self.connection, self.server) = (connection, server)
        // Of which three quarters are free when the delegate is told of space.
        connection.output.writeBufferSize = 65_536
        for stream in [connection.input, connection.output] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .common)
            stream.open()
        }
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable: hasBytes = true
        case .hasSpaceAvailable: hasSpace = true
        case .endEncountered, .errorOccurred: server.forget(self)
        default: break
        }
        guard hasBytes, hasSpace else { return }
        (hasBytes, hasSpace) = (false, false)
        connection.output.write(connection.input.read(upTo: 16_384))
    }
}

final class Server {
    private var sessions: [ObjectIdentifier: Session] = [:]

    func start(at address: SocketAddress) throws {
        let listener = try Listener(address) { _, connection in
            let session = Session(connection, of: self)
            self.sessions[ObjectIdentifier(session)] = session
        }
        try RunLoop.current.add(listener, forMode: .common)
    }

    func forget(_ session: Session) { sessions[ObjectIdentifier(session)] = nil }
}

let server = Server()
try server.start(at: .ipv6Any(port: 7007))
RunLoop.current.run(in: .default)
