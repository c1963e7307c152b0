import Reactor

// An echo server as a service of systemd: takes the socket that a socket unit has opened, or opens one, reports when it is
// ready, and feeds the watchdog. SIGTERM ends it gracefully, which systemd hears of.
let socket = try ServiceManager.takeSockets().first
let connections =
    try socket.map { try RunLoop.main.connections(descriptor: $0.descriptor) }
    ?? RunLoop.main.connections(at: .ipv6Any(port: 7007))
if let watchdog = ServiceManager.watchdogTimer() { RunLoop.main.add(watchdog, forMode: .common) }
try await RunLoop.main.withGracefulShutdown { _ in
    try ServiceManager.notify(.ready, .status("Listening on \(connections.localAddress)"))
    try await connections.run { connection in
        for try await chunk in connection.chunks() { try await connection.write(chunk) }
    }
}
