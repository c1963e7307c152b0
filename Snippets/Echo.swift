import Glibc
import Reactor

// Echoes what clients send, on the main thread, until all of them have disconnected after Ctrl-C.
let connections = try RunLoop.main.connections(at: .ipv6Any(port: 7007)) { print($0) }
Task {
    for try await _ in try RunLoop.main.signals(SIGINT) { break }
    connections.drain()
}
try await withTaskExecutorPreference(RunLoop.main.executor()) { try await serve(connections) }

nonisolated func serve(_ connections: Listener.Connections) async throws {
    try await withThrowingDiscardingTaskGroup { group in
        for try await connection in connections { group.addTask { try? await echo(connection) } }
    }
}

nonisolated func echo(_ connection: Listener.Connection) async throws {
    for try await chunk in connection.input.chunks { try await connection.output.writeAll(chunk) }
    try await connection.output.shutDown()
}
