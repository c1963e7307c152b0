import Reactor

// Sends back what each client sends. Try it with `nc localhost 7007`.
try await Listener.run(at: .ipv6Any(port: 7007)) { connection in
    for try await chunk in connection.chunks() { try await connection.write(chunk) }
}
