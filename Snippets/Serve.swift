import Reactor

// Echoes bytes once there are some to read and there is room to write.
final class Session: StreamDelegate {
    private let connection: Listener.Connection
    private unowned let server: Server
    private var hasBytes = false
    private var hasSpace = false

    init(_ connection: Listener.Connection, of server: Server) {
        (self.connection, self.server) = (connection, server)
        // `hasSpaceAvailable` is delivered when three quarters of it are free.
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
        case .endEncountered, .errorOccurred: server.remove(self)
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
        } faults: { _, error in
            print(error)
        }
        try RunLoop.current.add(listener, forMode: .common)
    }

    func remove(_ session: Session) { sessions[ObjectIdentifier(session)] = nil }
}

let server = Server()
try server.start(at: .ipv6Any(port: 7007))
RunLoop.current.run(in: .default)
