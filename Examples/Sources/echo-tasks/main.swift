// An echo server with a task for each connection, all on the main thread: echo-tasks [PORT]
//
// After SIGINT or SIGTERM it accepts what is in the backlog and no later connections, and exits when its clients have
// disconnected, or have not for five seconds. A second signal kills it.

import ExampleSupport
import Reactor

let port = MainProgram.argument("PORT", otherwise: 7007) { UInt16($0) }
do {
    try await RunLoop.main.withGracefulShutdown(grace: .seconds(5)) { _ in
        let connections = try RunLoop.main.connections(at: .ipv4Loopback(port: port)) { fault in
            MainProgram.report("\(fault)")
        }
        MainProgram.printLine("Listening on \(connections.localAddress)")
        // The client's pace is the server's: a chunk is read once the one before is accepted.
        try await connections.run { connection in
            do {
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            } catch {
                MainProgram.report("\(connection): \(error)")
            }
        }
    }
} catch {
    MainProgram.end("\(error)")
}
