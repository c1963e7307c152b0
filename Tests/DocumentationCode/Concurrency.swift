import Reactor

// The code of the article on Swift Concurrency that is in no snippet.

@concurrent private func converse() async throws {
    let (input, output) = try await Stream.connect(toHost: "example.org", port: 7)
    try await output.writeAll("hello\n", timeout: .seconds(5))
    let echo = try await input.read(until: [10], timeout: .seconds(5))
    try await output.shutDown(timeout: .seconds(5))
    for try await line in input.lines { print(line) }
    print(echo ?? [])
}

private func count() async throws {
    let socket = try RunLoop.main.datagrams(boundTo: .ipv6Any(port: 7010))
    for try await message in socket {
        guard let sender = message.datagram.sender else { continue }
        try await socket.send("\(message.bytes.count)\n", to: sender)
    }
}

private func copy(_ copyEverything: @escaping @Sendable () async throws -> Void) async throws {
    let clock = RunLoop.main.clock()
    try await withDeadline(clock.now.advanced(by: .seconds(5)), clock: clock) { try await copyEverything() }
}

private func tick() async {
    for await date in RunLoop.main.ticks(every: .seconds(1), inModes: [.default]) {
        print("not while the loop tracks: \(date)")
    }
}

nonisolated func serve(_ connections: Listener.Connections) async throws {
    try await withThrowingDiscardingTaskGroup { group in
        for try await connection in connections { group.addTask { try? await echo(connection) } }
    }
}

nonisolated func echo(_ connection: Connection) async throws {
    for try await chunk in connection.streams.input.chunks { try await connection.streams.output.writeAll(chunk) }
    try await connection.streams.output.shutDown()
}

@MainActor private func startServer() async throws {
    let connections = try RunLoop.main.connections(at: .ipv6Any(port: 7007)) { print($0) }
    try await withTaskExecutorPreference(RunLoop.main.executor()) { try await serve(connections) }
}

actor Account {
    private var balance = 100

    func withdraw(_ amount: Int) -> Bool {
        guard balance >= amount else { return false }
        RunLoop.current.run(until: .now + .seconds(1))  // another withdraw may run here,
        balance -= amount  // so this may go below zero
        return true
    }
}

@MainActor func serve(_ connection: Connection, _ messages: AsyncStream<String>) async throws {
    let writing = Task {
        for await message in messages {
            try await connection.streams.output.writeAll("\(message)\n", timeout: .seconds(10))
        }
    }
    defer { writing.cancel() }
    for try await line in connection.streams.input.lines { print(line) }
}

private func endServer(
    _ serve: @escaping @Sendable (Listener.Connections) async throws -> Void
) async throws {
    let thread = try RunLoopThread(name: "network")
    let connections = try thread.runLoop.connections(at: .ipv6Any(port: 7007)) { print($0) }
    let server = Task(executorPreference: thread.executor) { try await serve(connections) }
    await thread.shutDown()
    try await server.value
}
