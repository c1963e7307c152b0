import Reactor

// Prints the lines of a server, and connects again when the connection ends: `Reconnect example.org 7007`.
let arguments = CommandLine.arguments.dropFirst()
let host = arguments.first ?? "localhost"
let port = arguments.dropFirst().first.flatMap { UInt16($0) } ?? 7007
let clock = RunLoop.main.clock()
var backoff = Backoff()

/// A server answers each ping with a line: one that is gone without a word misses the timeout of the next line.
@Sendable func ping(_ connection: Connection) async throws {
    while true {
        try await clock.sleep(for: .seconds(20), tolerance: .seconds(2))
        try await connection.write("ping\n")
    }
}

while true {
    do {
        let connection = try await Connection.connect(
            toHost: host, port: port, options: .init(connectTimeout: .seconds(10)))
        defer { connection.close() }
        async let _ = ping(connection)
        for try await line in connection.lines(timeout: .seconds(60)) {
            backoff.reset()
            print(line)
        }
        print("\(host) has ended the connection")
    } catch let error as any ReactorError {
        print(error)
    }
    try await clock.sleep(for: backoff.nextDelay())
}
