import Glibc
import Reactor

// A TCP proxy: Proxy HOST PORT. An end of one side is passed on to the other, and an error of one side closes both.
func pass(from source: Connection, to destination: Connection) async throws {
    for try await chunk in source.chunks() { try await destination.write(chunk) }
    try destination.sendEnd()
}

func report(_ client: Connection, _ error: any Error) { print("\(client): \(error)") }

guard CommandLine.arguments.count == 3, let port = UInt16(CommandLine.arguments[2]) else {
    print("usage: Proxy HOST PORT")
    exit(2)
}
let host = CommandLine.arguments[1]
let options = Connection.Options(connectTimeout: .seconds(10))
try await Listener.run(at: .ipv6Any(port: 7008), limit: 1000, connectionErrors: report) { client in
    let server = try await Connection.connect(toHost: host, port: port, options: options)
    defer { server.close() }
    // This group cancels the other direction when one fails.
    try await withThrowingDiscardingTaskGroup { group in
        group.addTask { try await pass(from: client, to: server) }
        group.addTask { try await pass(from: server, to: client) }
    }
}
