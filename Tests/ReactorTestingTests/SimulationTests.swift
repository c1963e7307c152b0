import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Sends back what it receives, and ends after the peer.
private final class EchoServer: ConnectionDelegate {
    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .hasBytesAvailable, .hasSpaceAvailable:
            try? connection.send(connection.receive(upTo: connection.writableCount))
        case .endEncountered: try? connection.sendEnd()
        default: break
        }
    }
}

/// A client that sends a text, and records what it gets.
private final class Caller: ConnectionDelegate {
    let connection: Connection
    private let text: String
    private(set) var received: [UInt8] = []
    private(set) var chunkCount = 0
    private(set) var error: Errno?
    private(set) var hasOpened = false
    private(set) var hasEnded = false
    var onEvent: () -> Void = {}

    var answer: String { String(decoding: received, as: UTF8.self) }

    init(_ connection: Connection, sending text: String = "", forMode mode: RunLoop.Mode = .common) {
        (self.connection, self.text) = (connection, text)
        connection.open(delegate: self, forMode: mode)
    }

    func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .openCompleted:
            hasOpened = true
            try? connection.send(text)
        case .hasBytesAvailable:
            let bytes = connection.receive()
            chunkCount += 1
            received += bytes
        case .endEncountered: hasEnded = true
        case .errorOccurred(let error): self.error = (error as? IOError)?.errno
        default: break
        }
        onEvent()
    }
}

private func listen(
    _ address: SocketAddress,
    _ handler: @escaping (Listener, Connection) -> Void = { $1.open(delegate: EchoServer()) }
) throws -> Listener {
    let listener = try Listener(address, handler: handler, acceptErrors: { _, _ in })
    try RunLoop.current.add(listener, forMode: .common)
    return listener
}

@Suite(.runLoop) struct SimulationTests {
    @Test func `an address that a host is not given belongs to no other host`() {
        withSimulation { world in
            let hosts = [world.host("a", "10.0.0.3"), world.host("b"), world.host("c")]
            let addresses = hosts.flatMap(\.addresses)
            #expect(Set(addresses).count == addresses.count)
        }
    }

    @Test func `a client reaches a server`() throws {
        try withSimulation { world in
            var peer: SocketAddress?
            let listener = try listen(.ipv4Any(port: 7000)) { _, connection in
                peer = connection.peerAddress
                connection.open(delegate: EchoServer())
            }
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "hello")
            world.time.runUntilIdle()
            #expect(client.answer == "hello" && client.error == nil)
            #expect(listener.localAddress == .ipv4Any(port: 7000))
            #expect(client.connection.peerAddress == .ipv4Loopback(port: 7000))
            #expect(client.connection.localAddress == peer && peer?.ipv4 == 0x7f00_0001)
            client.connection.close()
            listener.close()
        }
    }

    @Test func `the kernel chooses ports, and refuses one that is taken`() throws {
        try withSimulation { _ in
            let first = try listen(.ipv6Any(port: 0))
            let port = try #require(first.localAddress.port)
            #expect(port >= 49_152)
            #expect(throws: IOError.self) { try listen(.ipv4Loopback(port: port)) }
            first.close()
            let second = try listen(.ipv4Loopback(port: port))
            second.close()
        }
    }

    @Test func `a connection to where no server listens is refused`() throws {
        withSimulation { world in
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)))
            world.time.runUntilIdle()
            #expect(client.error == .connectionRefused)
        }
    }

    @Test func `names resolve to the addresses of hosts`() throws {
        try withSimulation { world in
            let server = world.host("db.example", "10.1.0.1", "fd01::1")
            let listener = try server.run { try listen(.ipv6Any(port: 5432)) }
            let client = Caller(Connection(toHost: "db.example", port: 5432), sending: "select")
            world.time.runUntilIdle()
            #expect(client.answer == "select")
            #expect(client.connection.peerAddress == SocketAddress("10.1.0.1:5432"))
            var answers: [Result<[SocketAddress], IOError>] = []
            for host in ["db.example", "unknown.example"] {
                Resolver.resolve(host: host, service: "80") { answers.append($0) }
            }
            world.time.runUntilIdle()
            #expect(try answers.first?.get().map(\.description) == ["10.1.0.1:80", "[fd01::1]:80"])
            #expect(throws: IOError.self) { try answers.last?.get() }
            client.connection.close()
            listener.close()
        }
    }

    @Test func `latency delays connecting and bytes`() throws {
        try withSimulation { world in
            world.link.latency = .milliseconds(50) ... .milliseconds(50)
            let server = world.host("server")
            let listener = try server.run { try listen(.ipv4Any(port: 7000)) }
            let start = world.time.now
            let client = Caller(Connection(toHost: "server", port: 7000), sending: "x")
            client.onEvent = { [unowned client] in
                let time = start.duration(to: world.time.now)
                if client.hasOpened, client.received.isEmpty { #expect(time == .milliseconds(200)) }
                if !client.received.isEmpty { #expect(time == .milliseconds(300)) }
            }
            world.time.runUntilIdle()
            #expect(client.answer == "x")
            client.connection.close()
            listener.close()
        }
    }

    @Test func `bytes arrive in pieces of the link's sizes`() throws {
        try withSimulation { world in
            world.link.chunkSizes = 1...7
            let listener = try world.host("server").run { try listen(.ipv4Any(port: 7000)) }
            let text = String(repeating: "x", count: 1000)
            let client = Caller(Connection(toHost: "server", port: 7000), sending: text)
            world.time.runUntilIdle()
            #expect(client.answer == text && client.chunkCount >= 1000 / 7)
            client.connection.close()
            listener.close()
        }
    }

    @Test func `a partition holds bytes back until it heals`() throws {
        try withSimulation { world in
            let (server, other) = (world.host("server"), world.host("other"))
            var acceptCount = 0
            let listener = try server.run {
                try listen(.ipv4Any(port: 7000)) { _, connection in
                    acceptCount += 1
                    connection.open(delegate: EchoServer())
                }
            }
            let clients = [world.localhost, other].map { host in
                host.run { Caller(Connection(toHost: "server", port: 7000), sending: "first") }
            }
            world.time.advance(by: .seconds(1))
            world.partition(server, other)
            for client in clients { try client.connection.send("second") }
            let late = other.run { Caller(Connection(toHost: "server", port: 7000), sending: "late") }
            world.time.advance(by: .seconds(10))
            #expect(clients.map(\.answer) == ["firstsecond", "first"])
            #expect(acceptCount == 2 && !late.hasOpened)
            world.heal()
            world.time.advance(by: .seconds(20))
            #expect(clients.map(\.answer) == ["firstsecond", "firstsecond"] && late.answer == "late")
            for client in clients + [late] { client.connection.close() }
            listener.close()
        }
    }

    @Test func `an attempt that no host answers times out`() throws {
        withSimulation { world in
            world.link.loss = 1
            let server = world.host("server")
            let start = world.time.now
            let client = Caller(Connection(to: server.addresses[0].withPort(7000)))
            world.time.runUntilIdle()
            #expect(client.error == .timedOut && start.duration(to: world.time.now) >= .seconds(75))
            let unknown = Caller(Connection(to: .ipv4(0x0102_0304, port: 7000)))
            world.time.runUntilIdle()
            #expect(unknown.error == .noRouteToHost)
        }
    }

    @Test func `a reset fails both ends`() throws {
        try withSimulation { world in
            world.faults.resets = 1
            var served: Caller?
            let listener = try listen(.ipv4Any(port: 7000)) { served = Caller($1) }
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "hello")
            world.time.runUntilIdle()
            #expect(client.error == .connectionReset && served?.error == .connectionReset)
            listener.close()
        }
    }

    @Test func `a server that has too many open files accepts later`() throws {
        try withSimulation { world in
            let listener = try listen(.ipv4Any(port: 7000))
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "hello")
            world.time.advance(by: .zero)
            world.faults.tooManyFiles = 1
            let second = Caller(Connection(to: .ipv4Loopback(port: 7000)))
            world.time.advance(by: .seconds(1))
            #expect(client.answer == "hello" && second.error == .tooManyOpenFiles)
            client.connection.close()
            listener.close()
        }
    }

    @Test func `connecting works in a mode that only the client's loop has`() throws {
        try withSimulation { world in
            let mode = RunLoop.Mode("dialog")
            let listener = try Listener(.ipv4Any(port: 7000)) {
                $1.open(delegate: EchoServer(), forMode: mode)
            } acceptErrors: { _, _ in
            }
            try RunLoop.current.add(listener, forMode: mode)
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "hello", forMode: mode)
            world.time.runUntilIdle(inMode: mode)
            #expect(client.answer == "hello")
            client.connection.close()
            listener.close()
        }
    }

    @Test func `what a client sends before it closes arrives, though the server is sending`() throws {
        try withSimulation { world in
            world.link.latency = .milliseconds(50) ... .milliseconds(50)
            var served: Caller?
            let listener = try listen(.ipv4Any(port: 7000)) { served = Caller($1) }
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)))
            world.time.advance(by: .seconds(1))
            let timer = Timer.scheduled(every: .milliseconds(10)) { _ in try? served?.connection.send("x") }
            world.time.advance(by: .milliseconds(55))
            try client.connection.send("bye")
            client.connection.close()
            world.time.advance(by: .seconds(1))
            timer.invalidate()
            #expect(served?.answer == "bye")
            served?.connection.close()
            listener.close()
        }
    }

    @Test func `random delays are those of the seed`() {
        let delays = [0, 0, 1].map { seed in
            withSimulation(seed: seed) { _ in
                var backoff = Backoff()
                return (0..<5).map { _ in backoff.nextDelay() }
            }
        }
        #expect(delays[0] == delays[1] && delays[0] != delays[2])
    }

    @Test func `a timeout passes in virtual time`() throws {
        try withSimulation { world in
            let listener = try listen(.ipv4Any(port: 7000)) { served, connection in
                connection.idleTimeout = .seconds(300)
                connection.open(delegate: EchoServer())
            }
            let start = world.time.now
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "hello")
            world.time.runUntilIdle()
            #expect(client.hasEnded && start.duration(to: world.time.now) >= .seconds(300))
            client.connection.close()
            listener.close()
        }
    }

    // MARK: Datagrams

    @Test func `datagrams are answered to their sender`() throws {
        try withSimulation { world in
            let host = world.host("dns.example", "10.0.1.1")
            let server = try host.run {
                try DatagramSocket(boundTo: .ipv4Any(port: 53)) { socket, bytes, metadata in
                    _ = try? socket.send(bytes, to: metadata.sender)
                } events: { _, _ in
                }
            }
            var answers: [(String, SocketAddress?)] = []
            let client = try DatagramSocket(connectedTo: .ipv4(0x0a00_0101, port: 53)) { _, bytes, metadata in
                answers.append((String(decoding: Array(copying: bytes), as: UTF8.self), metadata.sender))
            } events: { _, _ in
            }
            for socket in [server, client] { try RunLoop.current.add(socket, forMode: .default) }
            for number in 0..<100 { #expect(try client.send("question \(number)")) }
            world.time.advance(by: .seconds(1))
            #expect(answers.map(\.0) == (0..<100).map { "question \($0)" })
            #expect(answers.allSatisfy { $0.1 == SocketAddress("10.0.1.1:53") })
            #expect(client.peerAddress == SocketAddress("10.0.1.1:53"))
            for socket in [server, client] { socket.close() }
        }
    }

    @Test func `datagrams are lost, duplicated and reordered`() throws {
        try withSimulation(seed: 3) { world in
            world.link.latency = .milliseconds(1) ... .milliseconds(9)
            (world.link.loss, world.link.duplication) = (0.1, 0.1)
            let host = world.host("server")
            var numbers: [Int] = []
            let server = try host.run {
                try DatagramSocket(boundTo: .ipv4Any(port: 9)) { _, bytes, _ in
                    numbers.append(Int(String(decoding: Array(copying: bytes), as: UTF8.self))!)
                } events: { _, _ in
                }
            }
            try RunLoop.current.add(server, forMode: .default)
            let client = try DatagramSocket(boundTo: .ipv4Any(port: 0)) { _, _, _ in
            } events: { _, _ in
            }
            for number in 0..<100 { _ = try client.send("\(number)", to: host.addresses[0].withPort(9)) }
            world.time.runUntilIdle()
            let kinds = Set(numbers)
            #expect((70..<100).contains(kinds.count) && numbers.count > kinds.count)
            #expect(numbers != numbers.sorted())
            for socket in [server, client] { socket.close() }
        }
    }

    // MARK: Tasks

    @Test func `tasks serve and connect`() async throws {
        try await withSimulation { world in
            let connections = try world.time.loop.connections(at: .ipv4Any(port: 7000))
            async let serving: Void = connections.run { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
            let connection = try await Connection.connect(toHost: "localhost", port: 7000)
            try await connection.write("hello\n")
            #expect(try await connection.read(exactly: 6) == Array("hello\n".utf8))
            connection.close()
            connections.close()
            try await serving
        }
    }
}

@Suite(.runLoop(timeLimit: .seconds(60))) struct SimulatedTaskTests {
    /// Four clients ask a server twenty questions each, and connect again after a failure.
    private func ask(in world: World) async throws -> Int {
        world.link.latency = .milliseconds(1) ... .milliseconds(20)
        world.link.chunkSizes = 1...9
        world.faults.resets = 0.02
        let server = world.host("server")
        let connections = try server.run { try world.time.loop.connections(at: .ipv4Any(port: 7000)) }
        async let serving: Void = connections.run { connection in
            for try await line in connection.lines() { try await connection.write("re: \(line)\n") }
        }
        let count = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 0..<4 {
                let host = world.host("client \(number)")
                group.addTask { try await host.run { try await questions(on: world.time.loop) } }
            }
            return try await group.reduce(0, +)
        }
        connections.close()
        try await serving
        return count
    }

    private func questions(on loop: RunLoop) async throws -> Int {
        var count = 0
        while count < 20 {
            do {
                let connection = try await Connection.connect(toHost: "server", port: 7000)
                defer { connection.close() }
                try await connection.write("question \(count)\n")
                for try await line in connection.lines() {
                    #expect(line == "re: question \(count)")
                    count += 1
                    if count == 20 { break }
                    try await connection.write("question \(count)\n")
                }
            } catch is IOError {
                try await loop.clock().sleep(for: .milliseconds(100))
            }
        }
        return count
    }

    @Test func `tasks get their answers, whatever happens to the connections`() async {
        await simulate(seeds: 20) { world in
            let count = try await ask(in: world)
            #expect(count == 80)
        }
    }

    @Test func `detached tasks and actors run on the simulation's thread`() async {
        actor Counter {
            var count = 0
            func increment() -> Int {
                count += 1
                return count
            }
        }
        await withSimulation { world in
            let (counter, loop, start) = (Counter(), world.time.loop, world.time.now)
            let tasks = (1...3).map { number in
                Task.detached {
                    try? await loop.clock().sleep(for: .seconds(number))
                    #expect(await counter.increment() == number && loop.isCurrent)
                    return Deadline.now
                }
            }
            for (number, task) in tasks.enumerated() {
                #expect(await start.duration(to: task.value) == .seconds(number + 1))
            }
        }
    }

    @Test func `tasks do the same for the same seed`() async throws {
        for seed in 0..<UInt64(3) {
            var traces: [[String]] = []
            for _ in 0..<2 {
                traces.append(
                    try await withSimulation(seed: seed) { world in
                        _ = try await ask(in: world)
                        return world.trace
                    })
            }
            #expect(traces[0] == traces[1] && traces[0].count > 100)
        }
    }
}

extension SocketAddress {
    fileprivate func withPort(_ port: UInt16) -> SocketAddress { .ipv4(ipv4!, port: port) }
}

extension Array where Element == UInt8 {
    fileprivate init(copying bytes: RawSpan) {
        self = bytes.withUnsafeBytes { Array($0) }
    }
}
