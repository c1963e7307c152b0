// A chat server with a task for each guest, all on the main thread: chat-tasks [PORT]
//
// SIGINT or SIGTERM disconnects the guests and ends it. A second signal kills it.

import ExampleSupport
import Reactor

let port = MainProgram.argument("PORT", otherwise: 7007) { UInt16($0) }
do {
    try await RunLoop.main.withGracefulShutdown { shutdown in
        let connections = try RunLoop.main.connections(at: .ipv4Loopback(port: port)) { fault in
            MainProgram.report("\(fault)")
        }
        let room = Room()
        async let end: Void = room.close(when: shutdown)
        MainProgram.printLine("Listening on \(connections.localAddress)")
        try await connections.run { connection in await room.serve(connection) }
        try await end
    }
} catch {
    MainProgram.end("\(error)")
}
