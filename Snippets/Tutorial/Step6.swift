import Dispatch
import Reactor

// Ctrl-C ends the server when each client has got its last line.
var words: [Connection: String] = [:]
let queue = DispatchQueue(label: "count")

try await RunLoop.main.withGracefulShutdown(grace: .seconds(5)) { shutdown in
    try await withThrowingTaskGroup { group in
        group.addTask { try await followLog() }
        group.addTask { try await listen(until: shutdown) }
        // What ends first, by an error or not, ends the other.
        try await group.next()
        group.cancelAll()
    }
}
print("ended")

@MainActor
func listen(until shutdown: GracefulShutdown) async throws {
    try await Listener.run(at: .ipv6Any(port: 7020), limit: 1000) { try await serve($0, until: shutdown) }
}

@MainActor
func serve(_ client: Connection, until shutdown: GracefulShutdown) async throws {
    words[client] = ""
    defer { words[client] = nil }
    let reader = LineReader(InputStream(path: "ticks.log"), text: .repair, into: 0, on: queue) {
        errors, line, _ in
        if line.hasSuffix("error") { errors += 1 }
    }
    reader.start { report in
        try? client.send("\(report.output.value) errors in \(report.output.lineCount) lines\n")
    }
    for try await word in client.lines(shutdown: shutdown) { words[client] = word }
    if shutdown.hasBegun { try client.send("The server ends.\n") }
}

@MainActor
func followLog() async throws {
    let tail = try ChildProcess.spawn(.init("tail", ["-F", "-n", "0", "ticks.log"], standardOutput: .stream))
    defer { tail.process.terminate(killAfter: .seconds(1)) }
    for try await line in tail.standardOutput!.lines {
        for (client, word) in words where word.isEmpty || line.contains(word) {
            do { try client.send(line + "\n") } catch { client.reset() }
        }
    }
}
