import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Forwards each guest's lines to the others: the core of the chat server among the examples.
private final class Room {
    private(set) var guests: [Guest] = []
    private var lastNumber = 0

    var isCongested: Bool { guests.contains(where: \.isBehind) }

    func welcome(_ guest: Guest) {
        lastNumber += 1
        guest.name = "guest\(lastNumber)"
        guests.append(guest)
        guest.send("* Welcome, \(guest.name).")
        broadcast("* \(guest.name) joined.", except: guest)
    }

    func perform(_ line: String, for guest: Guest) {
        if line == "/quit" { return guest.leave() }
        broadcast("\(guest.name): \(line)", except: guest)
    }

    func remove(_ guest: Guest) {
        guard let index = guests.firstIndex(where: { $0 === guest }) else { return }
        guests.remove(at: index)
        broadcast("* \(guest.name) left.")
        resumeReading()
    }

    func resumeReading() { for guest in guests where !isCongested { guest.resumeReading() } }

    private func broadcast(_ line: String, except sender: Guest? = nil) {
        for guest in guests where guest !== sender { guest.send(line) }
    }
}

private final class Guest: ConnectionDelegate {
    var name = ""
    var isBehind: Bool { !unsent.isEmpty }

    private let connection: Connection
    private let room: Room
    private var framer = LineFramer(limit: 1000, overflow: .truncate)
    private var unsent: [UInt8] = []
    private var isReadDeferred = false
    private var isLeaving = false

    init(_ connection: Connection, in room: Room) { (self.connection, self.room) = (connection, room) }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted: room.welcome(self)
        case .hasBytesAvailable: read()
        case .hasSpaceAvailable where isBehind:
            flush()
            if !isBehind { room.resumeReading() }
        case .endEncountered, .errorOccurred: close()
        default: break
        }
    }

    private func read() {
        isReadDeferred = room.isCongested
        guard !isReadDeferred, !isLeaving else { return }
        let bytes = connection.receive(upTo: 4096)
        _ = try? framer.push(bytes.span.bytes) { bytes, line in
            room.perform(try line.text(bytes), for: self)
            return isLeaving ? .enough : .more
        }
    }

    func resumeReading() { if isReadDeferred { read() } }

    func send(_ line: String) {
        guard !isLeaving else { return }
        let wasBehind = isBehind
        unsent += "\(line)\n".utf8
        if !wasBehind { flush() }
    }

    private func flush() {
        let count = min(unsent.count, connection.writableCount)
        if count > 0, (try? connection.send(Array(unsent.prefix(count)))) != nil { unsent.removeFirst(count) }
        if isLeaving, !isBehind { close() }
    }

    func leave() {
        isLeaving = true
        flush()
    }

    private func close() {
        connection.close()
        room.remove(self)
    }
}

/// A person that says something twice a second, and connects again after a failure.
private final class Speaker: ConnectionDelegate {
    private let name: String
    private let host: Host
    private var connection: Connection?
    private var framer = LineFramer(limit: 1000, overflow: .truncate)
    private var backoff: Duration = .milliseconds(100)
    private var session = 0
    private var lineCount = 0
    private var timer: Timer?
    private var hasLeft = false
    /// The last line of each session of the others that has arrived in this session.
    private var lastLines: [String: Int] = [:]
    private(set) var receivedCount = 0
    /// Whether a line was lost, repeated or damaged.
    private(set) var fault: String?

    init(_ name: String, on host: Host) {
        (self.name, self.host) = (name, host)
        connect()
    }

    private func connect() {
        guard !hasLeft else { return }
        session += 1
        (lineCount, lastLines) = (0, [:])
        framer = LineFramer(limit: 1000, overflow: .truncate)
        let connection = Connection(toHost: "chat.example", port: 7008)
        self.connection = connection
        host.run { connection.open(delegate: self) }
    }

    private func retry() {
        timer?.invalidate()
        timer = Timer.scheduled(after: backoff) { [unowned self] _ in connect() }
        backoff = min(backoff * 2, .seconds(5))
    }

    private func speak() {
        lineCount += 1
        try? connection?.send("\(name).\(session) \(lineCount)\n")
    }

    func leave() {
        hasLeft = true
        timer?.invalidate()
        connection?.close()
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        guard connection === self.connection else { return }
        switch event {
        case .openCompleted:
            backoff = .milliseconds(100)
            timer?.invalidate()
            timer = Timer.scheduled(every: .milliseconds(500)) { [unowned self] _ in speak() }
        case .hasBytesAvailable:
            let bytes = connection.receive()
            _ = try? framer.push(bytes.span.bytes) { bytes, line in
                take(try line.text(bytes))
                return .more
            }
        case .endEncountered, .errorOccurred:
            connection.close()
            retry()
        default: break
        }
    }

    private func take(_ line: String) {
        receivedCount += 1
        if line.hasPrefix("* ") { return }
        // guest3: amy.1 17
        let words = line.split(separator: " ")
        guard words.count == 3, let number = Int(words[2]) else {
            fault = line
            return
        }
        let session = String(words[1])
        if let last = lastLines[session], number != last + 1 { fault = "\(line) after \(last)" }
        lastLines[session] = number
    }
}

@Suite(.runLoop(timeLimit: .seconds(600))) struct SimulatedChatTests {
    /// Five seconds of talk between four hosts and a server, and the trace.
    private func chat(in world: World) throws {
        world.link.latency = .milliseconds(1) ... .milliseconds(40)
        world.link.chunkSizes = 1...60
        world.link.loss = 0.05
        world.faults = World.Faults(all: 0.02)
        world.faults.resets = 0.005
        let server = world.host("chat.example")
        let room = Room()
        let listener = try server.run {
            try Listener(.ipv6Any(port: 7008)) { _, connection in
                connection.open(delegate: Guest(connection, in: room))
            } acceptErrors: { _, _ in
            }
        }
        try RunLoop.current.add(listener, forMode: .common)
        let hosts = ["amy", "ben", "cat", "dan"].map { world.host($0) }
        let speakers = hosts.map { Speaker($0.name, on: $0) }
        world.time.advance(by: .seconds(2))
        world.partition(server, hosts[0])
        world.time.advance(by: .seconds(3))
        world.heal()
        for speaker in speakers { speaker.leave() }
        world.time.advance(by: .seconds(10))
        #expect(room.guests.isEmpty)
        for speaker in speakers { #expect(speaker.fault == nil) }
        #expect(speakers.contains { $0.receivedCount > 0 })
        listener.close()
    }

    @Test func `within a session no line of a chat is lost or repeated, whatever happens to connections`() {
        simulate(seeds: Depth.of(full: 10_000, quick: 100)) { try chat(in: $0) }
    }

    @Test func `the same seed is the same run`() throws {
        for seed in 0..<UInt64(3) {
            let traces = try (0..<2).map { _ in
                try withSimulation(seed: seed) { world in
                    try chat(in: world)
                    return world.trace
                }
            }
            #expect(traces[0] == traces[1] && traces[0].count > 100)
        }
    }
}
