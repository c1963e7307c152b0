import Reactor

// Echoes what clients send. A client that does not read is not read either: its replies wait in 64 KiB at most.
final class Echo: ConnectionDelegate {
    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .hasBytesAvailable, .hasSpaceAvailable:
            try? connection.send(connection.receive(upTo: connection.writableCount))
        case .endEncountered: try? connection.sendEnd()
        default: break
        }
    }
}

let listener = try Listener(.ipv6Any(port: 7007)) { _, connection in
    connection.open(delegate: Echo())
} acceptErrors: { _, error in
    print(error)
}
try RunLoop.current.add(listener, forMode: .common)
RunLoop.current.run(in: .default)
