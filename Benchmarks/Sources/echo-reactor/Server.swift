import Reactor
import SystemPackage

/// Accepts connections, and keeps them until they end.
final class Server {
    /// What all connections read into.
    let buffer = UnsafeMutablePointer<UInt8>.allocate(capacity: Connection.bufferSize)
    private var connections: [ObjectIdentifier: Connection] = [:]

    /// Listens at `port` of the loopback address, or any free one if that is zero; returns which.
    func start(at port: UInt16) throws -> UInt16 {
        let listener = try Listener(.ipv4Loopback(port: port)) { [self] _, streams in
            let connection = Connection(streams, of: self)
            connections[ObjectIdentifier(connection)] = connection
        } faults: { _, error in
            print(error)
        }
        try RunLoop.current.add(listener, forMode: .default)
        return listener.localAddress.port ?? 0
    }

    func forget(_ connection: Connection) { connections[ObjectIdentifier(connection)] = nil }
}
