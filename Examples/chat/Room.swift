import Reactor

/// Where the guests are: it passes on what they say. All on one loop, so that nothing is ever locked.
final class Room {
    /// How long a guest may take for the last lines when the room closes.
    private static let patience = Duration.seconds(1)

    private var guests: [Guest] = []
    private var lastNumber = 0
    /// Called when the last guest has gone; nil while the room is open.
    private var onEmpty: (() -> Void)?

    /// Takes in whoever is at the other end of `connection`.
    func welcome(_ connection: Listener.Connection) {
        lastNumber += 1
        let guest = Guest(connection, name: "guest\(lastNumber)", in: self)
        guests.append(guest)
        guest.begin()
        guest.send("* Welcome, \(guest.name). There are /nick NAME, /who and /quit.")
        tell("* \(guest.name) has come.", except: guest)
    }

    /// Does what a guest asks for.
    func take(_ command: Command, from guest: Guest) {
        switch command {
        case .say(let text): tell("\(guest.name): \(text)", except: guest)
        case .nick(let name): rename(guest, name)
        case .who: guest.send("* Here: \(guests.map(\.name).joined(separator: ", "))")
        case .quit: guest.leave()
        case .unknown(let word): guest.send("* There is no /\(word).")
        }
    }

    /// Lets go of a guest who has gone.
    func forget(_ guest: Guest, because reason: String) {
        guests.removeAll { $0 === guest }
        guard let onEmpty else { return tell("* \(guest.name) has gone\(reason).") }
        if guests.isEmpty { onEmpty() }
    }

    /// Sends everybody home, and calls `completion` when they have gone.
    func close(then completion: @escaping () -> Void) {
        guard !guests.isEmpty else { return completion() }
        tell("* The room closes.")
        onEmpty = completion
        Timer.scheduled(after: Self.patience, forMode: .common) { [self] _ in
            for guest in guests { guest.end() }
        }
        for guest in guests { guest.leave() }
    }

    private func rename(_ guest: Guest, _ name: String) {
        guard !guests.contains(where: { $0.name == name }) else { return guest.send("* \(name) is taken.") }
        tell("* \(guest.name) is now \(name).")
        guest.name = name
    }

    private func tell(_ line: String, except speaker: Guest? = nil) {
        // A copy: whoever cannot take the line goes, and that is told in turn.
        for guest in guests where guest !== speaker { guest.send(line) }
    }
}
