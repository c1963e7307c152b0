import Reactor

// Echoes what clients send, on the main thread. After Ctrl-C it accepts no more, and its clients have ten seconds to leave.
try await RunLoop.main.withGracefulShutdown(grace: .seconds(5)) { _ in
    try await Listener.run(at: .ipv6Any(port: 7007), acceptErrors: { print($0) }) { connection in
        for try await chunk in connection.chunks() { try await connection.write(chunk) }
    }
}
