// A chat server with a task for each guest, all on the main thread: chat-tasks [PORT]
//
// SIGINT or SIGTERM disconnects the guests and ends it. A second signal kills it.

import Glibc
import Reactor
import SystemPackage

let port = CommandLine.arguments.dropFirst().first.flatMap { UInt16($0) } ?? 7007
let connections = try RunLoop.main.connections(at: .ipv4Loopback(port: port)) { fault in
    _ = try? FileDescriptor.standardError.writeAll(Array("\(fault)\n".utf8))
}

let room = Room()
let end = Task.immediate {
    for try await _ in try RunLoop.main.signals(SIGINT, SIGTERM) { break }
    connections.close()
    await room.close()
}
try FileDescriptor.standardOutput.writeAll(Array("Listening on \(connections.localAddress)\n".utf8))
for try await connection in connections { Task { await room.serve(connection) } }
try await end.value
