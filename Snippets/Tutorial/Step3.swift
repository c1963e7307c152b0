import Reactor

// Sends the lines that are appended to the log to every client.
var clients: Set<Connection> = []

let connections = try RunLoop.main.connections(at: .ipv6Any(port: 7020))
Task {
    try await connections.run { @MainActor client in
        clients.insert(client)
        defer { clients.remove(client) }
        for try await _ in client.chunks() {}  // until the client has disconnected
    }
}

let tail = try ChildProcess.spawn(.init("tail", ["-F", "-n", "0", "ticks.log"], standardOutput: .stream))
for try await line in tail.standardOutput!.lines {
    for client in clients {
        // A client that does not read is disconnected when its write buffer is full.
        do { try client.send(line + "\n") } catch { client.reset() }
    }
}
