import Dispatch
import Reactor

// The code of the article on Swift Concurrency that is in no snippet.

@concurrent private func converse() async throws {
    let connection = try await Connection.connect(toHost: "example.org", port: 7)
    try await connection.write("hello\n", timeout: .seconds(5))
    let echo = try await connection.read(until: [10], timeout: .seconds(5))
    try await connection.finish(timeout: .seconds(5))
    for try await line in connection.lines() { print(line) }
    print(echo ?? [])
}

private func count() async throws {
    let socket = try RunLoop.main.datagrams(boundTo: .ipv6Any(port: 7010))
    for try await datagram in socket {
        guard let sender = datagram.metadata.sender else { continue }
        try await socket.send("\(datagram.bytes.count)\n", to: sender)
    }
}

private func copy(_ copyEverything: @escaping @Sendable () async throws -> Void) async throws {
    let clock = RunLoop.main.clock()
    try await clock.withDeadline(.now + .seconds(5)) { try await copyEverything() }
}

private func tick() async {
    for await date in RunLoop.main.ticks(every: .seconds(1), inModes: [.default]) {
        print("not while the loop tracks: \(date)")
    }
}

@MainActor private func startServers() async throws {
    try await Listener.run(at: .ipv6Any(port: 7007)) { connection in
        for try await chunk in connection.chunks() { try await connection.write(chunk) }
    }

    let connections = try RunLoop.main.connections(at: .ipv6Any(port: 0), acceptErrors: { print($0) })
    print("listening on \(connections.localAddress)")
    try await connections.run(limit: 1000) { connection in
        for try await chunk in connection.chunks() { try await connection.write(chunk) }
    }
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

func serve(_ connection: Connection, _ messages: AsyncStream<String>) async throws {
    async let writing: Void = write(messages, to: connection)
    for try await line in connection.lines() { print(line) }
    try await writing
}

func write(_ messages: AsyncStream<String>, to connection: Connection) async throws {
    for await message in messages { try await connection.write("\(message)\n", timeout: .seconds(10)) }
}

private func endServer(
    _ serve: @escaping @Sendable (Listener.Connections) async throws -> Void
) async throws {
    let thread = try RunLoopThread(name: "network")
    let connections = try thread.runLoop.connections(at: .ipv6Any(port: 7007), acceptErrors: { print($0) })
    let server = Task(executorPreference: thread.executor) { try await serve(connections) }
    await thread.shutDown()
    try await server.value
}

private func readRecord(_ key: [UInt8]) throws -> [UInt8] { key }
private func compress(_ record: [UInt8]) -> [UInt8] { record }

private func serveRecords() async throws {
    try await Listener.run(at: .ipv6Any(port: 7007)) { connection in
        for try await key in connection.messages(.delimiter()) {
            let record = try await onQueue { try readRecord(key) }
            let reply = await withTaskExecutorPreference(globalConcurrentExecutor) { compress(record) }
            try await connection.write(reply)
        }
    }
}

/// Calls `body`, which may block, on a Dispatch queue.
func onQueue<Value: Sendable>(_ body: @escaping @Sendable () throws -> Value) async throws -> Value {
    try await withCheckedThrowingContinuation { continuation in
        DispatchQueue.global().async { continuation.resume(with: Result { try body() }) }
    }
}
