// An echo server with a task for each connection, all on the main thread: echo-tasks [PORT]
//
// After SIGINT or SIGTERM it accepts what is in the backlog and no later connections, and exits when its clients have
// disconnected. A second signal kills it.

import ExampleSupport
import Glibc
import Reactor

let port = MainProgram.argument("PORT", otherwise: 7007) { UInt16($0) }
do {
    let connections = try RunLoop.main.connections(at: .ipv4Loopback(port: port)) { fault in
        MainProgram.report("\(fault)")
    }
    Task.immediate {
        for try await _ in try RunLoop.main.signals(SIGINT, SIGTERM) { break }
        connections.drain()
    }
    MainProgram.printLine("Listening on \(connections.localAddress)")
    // The tasks stay on the main thread, where the main loop serves the sockets.
    try await withTaskExecutorPreference(RunLoop.main.executor()) { try await serve(connections) }
} catch {
    MainProgram.end("\(error)")
}

nonisolated func serve(_ connections: Listener.Connections) async throws {
    try await withThrowingDiscardingTaskGroup { group in
        for try await connection in connections { group.addTask { await echo(connection) } }
    }
}

/// Sends back what the client sends. The client's pace is the server's: a chunk is read once the one before is accepted.
nonisolated func echo(_ connection: Connection) async {
    do {
        for try await chunk in connection.input.chunks { try await connection.output.writeAll(chunk) }
        try await connection.output.shutDown()
    } catch {
        MainProgram.report("\(connection.peerAddress): \(error)")
    }
}
