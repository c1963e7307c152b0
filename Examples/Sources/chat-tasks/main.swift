// A chat server with a task for each guest, all on the main thread: chat-tasks [PORT]
//
// SIGINT or SIGTERM disconnects the guests and ends it. A second signal kills it.

import ExampleSupport
import Glibc
import Reactor

let port = MainProgram.argument("PORT", otherwise: 7007) { UInt16($0) }
do {
    let connections = try RunLoop.main.connections(at: .ipv4Loopback(port: port)) { fault in
        MainProgram.report("\(fault)")
    }
    let room = Room()
    let end = Task.immediate {
        for try await _ in try RunLoop.main.signals([.interrupt, .terminate]) { break }
        connections.close()
        await room.close()
    }
    MainProgram.printLine("Listening on \(connections.localAddress)")
    for try await connection in connections { Task { await room.serve(connection) } }
    try await end.value
} catch {
    MainProgram.end("\(error)")
}
