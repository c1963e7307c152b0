import Dispatch
import Reactor

// Tells each client how many errors the log has. A queue counts them, however long the log is.
var clients: Set<Connection> = []
let queue = DispatchQueue(label: "count")

let connections = try RunLoop.main.connections(at: .ipv6Any(port: 7020))
Task {
    try await connections.run { @MainActor client in
        clients.insert(client)
        defer { clients.remove(client) }
        let reader = LineReader(InputStream(path: "ticks.log"), text: .repair, into: 0, on: queue) {
            errors, line, _ in
            if line.hasSuffix("error") { errors += 1 }
        }
        reader.start { report in
            try? client.send("\(report.output.value) errors in \(report.output.lineCount) lines\n")
        }
        for try await _ in client.chunks() {}
    }
}

let tail = try ChildProcess.spawn(.init("tail", ["-F", "-n", "0", "ticks.log"], standardOutput: .stream))
for try await line in tail.standardOutput!.lines {
    for client in clients {
        do { try client.send(line + "\n") } catch { client.reset() }
    }
}
