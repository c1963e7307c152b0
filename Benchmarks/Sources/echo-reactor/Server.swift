import Reactor
import SystemPackage

/// Accepts connections, and retains them until they end.
final class Server {
    /// The read buffer that all connections share.
    let buffer = UnsafeMutablePointer<UInt8>.allocate(capacity: Connection.bufferSize)
    private var connections: [ObjectIdentifier: Connection] = [:]

    /// Listens on a loopback port, which the kernel chooses if `port` is zero. Returns the port.
    func start(at port: UInt16) throws -> UInt16 {
        let listener = try Listener(.ipv4Loopback(port: port)) { [self] _, streams in
            let connection = Connection(streams, of: self)
            connections[ObjectIdentifier(connection)] = connection
        } acceptErrors: { _, error in
            print(error)
        }
        try RunLoop.current.add(listener, forMode: .default)
        return listener.localAddress.port ?? 0
    }

    func remove(_ connection: Connection) { connections[ObjectIdentifier(connection)] = nil }
}
