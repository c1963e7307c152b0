import Reactor

/// Forwards each guest's lines to the others. Used on one loop's thread, so it needs no locks.
///
/// Guests may send faster than one of them receives. The room then reads from no guest until that guest has caught up
/// or has disconnected, and TCP's flow control stops the senders.
final class Room {
    /// How long ``close(then:)`` waits for guests to receive their last lines.
    private static let closingTimeout = Duration.seconds(1)

    private var guests: [Guest] = []
    private var lastNumber = 0
    /// Called when the last guest has disconnected. Nil while the room is open.
    private var onEmpty: (() -> Void)?

    var isCongested: Bool { guests.contains(where: \.isBehind) }

    /// Adds a guest whose connection is open.
    func welcome(_ guest: Guest) {
        lastNumber += 1
        guest.name = "guest\(lastNumber)"
        guests.append(guest)
        guest.send("* Welcome, \(guest.name). Commands: /nick NAME, /who, /quit.")
        broadcast("* \(guest.name) joined.", except: guest)
    }

    func perform(_ command: Command, for guest: Guest) {
        switch command {
        case .say(let text): broadcast("\(guest.name): \(text)", except: guest)
        case .nick(let name): rename(guest, to: name)
        case .who: guest.send("* Users: \(guests.map(\.name).joined(separator: ", "))")
        case .quit: guest.leave()
        case .unknown(let text): guest.send("* Unknown command: /\(text)")
        }
    }

    /// Removes a guest that has disconnected, unless it was never welcomed.
    func remove(_ guest: Guest, reason: String?) {
        guard let index = guests.firstIndex(where: { $0 === guest }) else { return }
        guests.remove(at: index)
        guard let onEmpty else {
            broadcast("* \(guest.name) left\(reason.map { " (\($0))" } ?? "").")
            return resumeReading()
        }
        if guests.isEmpty { onEmpty() }
    }

    /// Resumes deferred reads until the room is congested again.
    func resumeReading() {
        for guest in guests where !isCongested { guest.resumeReading() }
    }

    /// Disconnects all guests, and then calls `completion`.
    func close(then completion: @escaping () -> Void) {
        guard !guests.isEmpty else { return completion() }
        broadcast("* The server is shutting down.")
        onEmpty = completion
        Timer.scheduled(after: Self.closingTimeout, forMode: .common) { [self] _ in
            for guest in guests { guest.close() }
        }
        for guest in guests { guest.leave() }
    }

    private func rename(_ guest: Guest, to name: String) {
        guard !guests.contains(where: { $0.name == name }) else {
            return guest.send("* The name \(name) is already in use.")
        }
        broadcast("* \(guest.name) is now known as \(name).")
        guest.name = name
    }

    private func broadcast(_ line: String, except sender: Guest? = nil) {
        for guest in guests where guest !== sender { guest.send(line) }
    }
}
