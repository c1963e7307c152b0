import Dispatch
import Reactor

// A client may send a word: then it gets only lines with that word.
var words: [Connection: String] = [:]
let queue = DispatchQueue(label: "count")

let connections = try RunLoop.main.connections(at: .ipv6Any(port: 7020))
Task {
    try await connections.run { @MainActor client in
        words[client] = ""
        defer { words[client] = nil }
        let reader = LineReader(InputStream(path: "ticks.log"), text: .repair, into: 0, on: queue) {
            errors, line, _ in
            if line.hasSuffix("error") { errors += 1 }
        }
        reader.start { report in
            try? client.send("\(report.output.value) errors in \(report.output.lineCount) lines\n")
        }
        for try await word in client.lines() { words[client] = word }
    }
}

let tail = try ChildProcess.spawn(.init("tail", ["-F", "-n", "0", "ticks.log"], standardOutput: .stream))
for try await line in tail.standardOutput!.lines {
    for (client, word) in words where word.isEmpty || line.contains(word) {
        do { try client.send(line + "\n") } catch { client.reset() }
    }
}
