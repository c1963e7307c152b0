import Reactor

/// Where the guests are: it passes on what they say. All on one loop, so that nothing is ever locked.
///
/// Guests may speak faster than one of them reads. Then the room reads no guest until that one has caught up or is gone,
/// and TCP makes the speakers wait.
final class Room {
    /// How long a guest may take for the last lines when the room closes.
    private static let patienceAtTheEnd = Duration.seconds(1)

    /// How long a guest may take nothing of what is to be sent to it.
    let patience: Duration

    private var guests: [Guest] = []
    private var lastNumber = 0
    /// Called when the last guest has gone; nil while the room is open.
    private var onEmpty: (() -> Void)?

    /// Whether a guest has so much to read that no line should be added.
    var isCongested: Bool { guests.contains { $0.isBehind } }

    init(patience: Duration) { self.patience = patience }

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
        guard let onEmpty else {
            tell("* \(guest.name) has gone\(reason).")
            return goOn()
        }
        if guests.isEmpty { onEmpty() }
    }

    /// Reads the guests that have been held up, until the room is congested again.
    func goOn() {
        for guest in guests where !isCongested { guest.goOn() }
    }

    /// Sends everybody home, and calls `completion` when they have gone.
    func close(then completion: @escaping () -> Void) {
        guard !guests.isEmpty else { return completion() }
        tell("* The room closes.")
        onEmpty = completion
        Timer.scheduled(after: Self.patienceAtTheEnd, forMode: .common) { [self] _ in
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
        for guest in guests where guest !== speaker { guest.send(line) }
    }
}
