import Reactor

// Sends the time to every client, ten times a second. A client that is slow gets fewer updates, and the latest.
@MainActor final class Feed {
    private var clients: [ObjectIdentifier: SendQueue] = [:]

    func serve(_ connection: Connection) async throws {
        let updates = SendQueue(to: connection, limit: 4096, overflow: .dropOldest)
        clients[ObjectIdentifier(updates)] = updates
        defer { clients[ObjectIdentifier(updates)] = nil }
        while try await connection.read() != nil {}
    }

    /// Ticks that come while one is being served are one: a machine that is too slow sends fewer updates.
    func publish() async {
        for await time in RunLoop.main.ticks(every: .milliseconds(100)) {
            let update = Array("\(time)\n".utf8)
            for client in clients.values { try? client.send(update, replacing: "time") }
        }
    }
}

let feed = Feed()
async let publishing: Void = feed.publish()
try await Listener.run(at: .ipv6Any(port: 7007), limit: 1000) { connection in
    try await feed.serve(connection)
}
await publishing
