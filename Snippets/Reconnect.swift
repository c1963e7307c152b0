import Reactor

// Prints the lines of a server, and connects again when the connection ends: `Reconnect example.org 7007`.
let arguments = CommandLine.arguments.dropFirst()
let host = arguments.first ?? "localhost"
let port = arguments.dropFirst().first.flatMap { UInt16($0) } ?? 7007
let clock = RunLoop.main.clock()
var backoff = Backoff()

/// A peer that is gone without a word is found out by the idle timeout, as it does not answer.
@Sendable func ping(_ connection: Connection) async throws {
    while true {
        try await clock.sleep(for: .seconds(20), tolerance: .seconds(2))
        try await connection.write("ping\n")
    }
}

while true {
    do {
        let connection = try await Connection.connect(
            toHost: host, port: port, options: .init(connectTimeout: .seconds(10), idleTimeout: .seconds(60)))
        defer { connection.close() }
        async let _ = ping(connection)
        for try await line in connection.lines() {
            backoff.reset()
            print(line)
        }
        print("\(host) has ended the connection")
    } catch let error as any ReactorError {
        print(error)
    }
    try await clock.sleep(for: backoff.nextDelay())
}
