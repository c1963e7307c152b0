import Reactor

/// Forwards each guest's lines to the others, in the same order to all.
///
/// A guest's next line is read once the others have taken the one before, so TCP's flow control stops a guest that sends
/// faster than one of them receives.
@MainActor
final class Room {
    private var guests: [Guest] = []
    private var lastNumber = 0
    private var isClosed = false

    /// Returns when the guest has left.
    func serve(_ connection: Connection) async {
        guard !isClosed else { return }
        lastNumber += 1
        let guest = Guest(connection, name: "guest\(lastNumber)")
        guests.append(guest)
        guest.send("* Welcome, \(guest.name). Commands: /nick NAME, /who, /quit.")
        await broadcast("* \(guest.name) joined.", except: guest)
        await guest.readLines { line in await perform(line, for: guest) }
        guests.removeAll { $0 === guest }
        if !isClosed { await broadcast("* \(guest.name) left\(guest.fault.map { " (\($0))" } ?? "").") }
        await guest.leave()
    }

    /// Disconnects all guests when the program ends.
    func close(when shutdown: GracefulShutdown) async throws {
        try await shutdown.waitUntilBegun()
        isClosed = true
        await broadcast("* The server is shutting down.")
        for guest in guests { await guest.leave() }
    }

    /// False if the guest is to be disconnected.
    private func perform(_ line: String, for guest: Guest) async -> Bool {
        guard !isClosed else { return false }
        let words = line.split(separator: " ").map(String.init)
        switch (words.first, words.dropFirst().first) {
        case ("/nick", let name?): await rename(guest, to: name)
        case ("/who", nil): await reply("* Users: \(guests.map(\.name).joined(separator: ", "))", to: guest)
        case ("/quit", nil): return false
        case (let word?, _) where word.hasPrefix("/"): await reply("* Unknown command: \(line)", to: guest)
        default: await broadcast("\(guest.name): \(line)", except: guest)
        }
        return true
    }

    private func rename(_ guest: Guest, to name: String) async {
        guard !guests.contains(where: { $0.name == name }) else {
            return await reply("* The name \(name) is already in use.", to: guest)
        }
        let line = "* \(guest.name) is now known as \(name)."
        guest.name = name
        await broadcast(line)
    }

    private func reply(_ line: String, to guest: Guest) async {
        guest.send(line)
        await guest.takeLines()
    }

    /// Returns when all have taken the line, or have been disconnected because they did not.
    private func broadcast(_ line: String, except sender: Guest? = nil) async {
        let receivers = guests.filter { $0 !== sender }
        for receiver in receivers { receiver.send(line) }
        await withDiscardingTaskGroup { group in
            for receiver in receivers { group.addTask { await receiver.takeLines() } }
        }
    }
}
