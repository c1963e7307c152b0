import Reactor

// Echoes on two threads that share a port. After Ctrl-C the clients of both have five seconds to leave.
let threads = try (1...2).map { try RunLoopThread(name: "echo \($0)") }
try await RunLoop.main.withGracefulShutdown(grace: .seconds(5)) { _ in
    try await withThrowingDiscardingTaskGroup { group in
        var address = SocketAddress.ipv6Any(port: 0)
        for thread in threads {
            let connections = try thread.runLoop.connections(
                at: address, options: .init(reusesPort: true), acceptErrors: { print($0) })
            address = connections.localAddress  // the port that the kernel has chosen is the next one's too
            group.addTask {
                try await connections.run(limit: 500) { connection in
                    for try await chunk in connection.chunks() { try await connection.write(chunk) }
                }
            }
        }
        print("listening on \(address)")
    }
}
for thread in threads { await thread.shutDown() }
