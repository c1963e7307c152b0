import Reactor

// Echoes what clients send, on the main thread, until all of them have disconnected after Ctrl-C.
let connections = try RunLoop.main.connections(at: .ipv6Any(port: 7007), faults: { print($0) })
Task {
    for try await _ in try RunLoop.main.signals([.interrupt]) { break }
    connections.drain()
}
try await connections.run { connection in
    for try await chunk in connection.chunks() { try await connection.write(chunk) }
}
