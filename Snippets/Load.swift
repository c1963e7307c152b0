import Reactor

// Loads a server that sends back lines, such as the snippet Echo, for ten seconds:
// `swift run -c release Load localhost 7007 100` opens 100 connections, each with one message at a time.
let arguments = CommandLine.arguments.dropFirst()
let host = arguments.first ?? "localhost"
let port = arguments.dropFirst().first.flatMap { UInt16($0) } ?? 7007
let count = arguments.dropFirst(2).first.flatMap { Int($0) } ?? 100

let end = Deadline.now + .seconds(10)
var times: [Duration] = []

@MainActor
func load() async throws {
    let connection = try await Connection.connect(toHost: host, port: port)
    defer { connection.close() }
    while Deadline.now < end {
        let begin = Deadline.now
        try await connection.write("hello\n", timeout: .seconds(10))
        guard try await connection.read(until: [10], timeout: .seconds(10)) != nil else { return }
        times.append(begin.duration(to: .now))
    }
}

try await withThrowingDiscardingTaskGroup { group in
    for _ in 0..<count { group.addTask { try await load() } }
}

times.sort()
print("\(times.count / 10) messages a second")
if !times.isEmpty {
    print("half of them within \(times[times.count / 2]), 99 % within \(times[times.count * 99 / 100])")
}
