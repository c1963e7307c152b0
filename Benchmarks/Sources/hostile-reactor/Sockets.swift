import Glibc
import Outcome
import Reactor
import ReactorTLS
import SystemPackage

private let size = 256 << 10
private let options = Connection.Options(connectTimeout: .seconds(1), idleTimeout: .seconds(1))

private func byte(_ index: Int) -> UInt8 { UInt8(truncatingIfNeeded: index ^ index >> 8) }

/// A client of a server on the same loop sends 256 KiB, and gets all of them back in order, and the end.
@MainActor func echo(security: Connection.Security?, _ client: Connection.Security?) async throws -> String {
    var settings = Listener.Options()
    settings.connection = options
    let connections = try RunLoop.main.connections(
        at: .ipv4Loopback(port: 0), options: settings, acceptErrors: note)
    @Sendable func end(_: Connection, _ error: any Error) { reported(error) }
    async let served: Void = connections.run(security: security, connectionErrors: end) { connection in
        for try await chunk in connection.chunks() { try await connection.write(chunk) }
    }
    let connection = try await Connection.connect(
        to: connections.localAddress, options: options, security: client)
    async let written: Void = write(to: connection)
    var received = 0
    for try await chunk in connection.chunks() {
        for value in chunk {
            if value != byte(received) { fail("byte \(received) is another one") }
            received += 1
        }
    }
    if received != size { fail("\(received) bytes of \(size)") }
    try await written
    connection.close()
    connections.drain()
    try await served
    return "\(size)"
}

private func write(to connection: Connection) async throws {
    for start in stride(from: 0, to: size, by: 16 << 10) {
        try await connection.write((start..<start + 16 << 10).map(byte))
    }
    try await connection.finish()
}

/// The same over TLS.
@MainActor func secureEcho() async throws -> String {
    let arguments = CommandLine.arguments
    let identity = try TLSIdentity(certificateFile: .init(arguments[2]), keyFile: .init(arguments[3]))
    var settings = TLSSettings.client()
    settings.trust = .file(FilePath(arguments[2]))
    settings.peerName = "localhost"
    return try await echo(security: .tls(.server(identity)), .tls(settings))
}

/// A connection to a port where something listens, and one where nothing does.
@MainActor func connect() async throws -> String {
    let connections = try RunLoop.main.connections(at: .ipv4Loopback(port: 0), acceptErrors: note)
    let address = connections.localAddress
    let connection = try await Connection.connect(to: address, options: options)
    let accepted = try await connections.accept(timeout: .seconds(1))
    try await accepted.write("hello")
    accepted.close()
    let greeting = try await connection.read(exactly: 5, timeout: .seconds(1))
    if greeting != Array("hello".utf8) { fail("\(greeting ?? [])") }
    connection.close()
    connections.close()
    do {
        _ = try await Connection.connect(to: address, options: options)
        fail("connected to a closed port")
    } catch let error as IOError where error.errno == .connectionRefused { return "refused" }
}

/// Twenty numbered datagrams, each of which comes back before the next one is sent.
@MainActor func exchangeDatagrams() async throws -> String {
    let server = try RunLoop.main.datagrams(boundTo: .ipv4Loopback(port: 0))
    let client = try RunLoop.main.datagrams(connectedTo: server.localAddress)
    let serving = Task { @MainActor in
        do {
            for try await datagram in server {
                try await server.send(datagram.bytes, to: datagram.metadata.sender!, timeout: .seconds(1))
            }
        } catch let error as IOError where error.errno == .badFileDescriptor {  // closed below
        } catch { reported(error) }
    }
    for number in 0..<20 as Range<UInt8> {
        try await client.send([number], timeout: .seconds(1))
        let reply = try await client.receive(timeout: .seconds(1))
        if reply.bytes != [number] { fail("\(reply.bytes) in place of \(number)") }
    }
    client.close()
    server.close()
    await serving.value
    return "20"
}

/// Fifty clients at once, each of which gets a greeting and the end.
final class Storm: ConnectionDelegate {
    private var clients: [Connection: [UInt8]] = [:]
    private var count = 0
    private var listener: Listener!

    func start() throws {
        listener = try Listener(.ipv4Loopback(port: 0)) { _, connection in
            connection.open(delegate: Greeter())
        } acceptErrors: {
            note($1)
        }
        try RunLoop.current.add(listener, forMode: .default)
        for _ in 0..<50 {
            let client = Connection(to: listener.localAddress, options: options)
            clients[client] = []
            client.open(delegate: self)
        }
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .hasBytesAvailable: clients[connection]! += connection.receive()
        case .errorOccurred: reported(connection.error!)
        case .endEncountered:
            if clients[connection]! != Array("hello".utf8) { fail("\(clients[connection]!)") }
            connection.close()
            count += 1
            guard count == clients.count else { return }
            listener.close()
            finish("50")
        default: break
        }
    }
}

/// Sends a greeting, and closes the connection.
private final class Greeter: ConnectionDelegate {
    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted:
            attempt { try connection.send("hello") }
            connection.close()
        case .errorOccurred: reported(connection.error!)
        default: break
        }
    }
}
