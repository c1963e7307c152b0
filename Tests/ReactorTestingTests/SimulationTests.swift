import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

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
                connection.open(delegate: Echo())
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

    @Test(arguments: [
        (SocketAddress.ipv6Loopback(port: 7000), SocketAddress.ipv4Any(port: 7000), true),
        (.ipv4Any(port: 7000), .ipv6Loopback(port: 7000), true),
        (.ipv4Loopback(port: 7000), .ipv6Any(port: 7000), false),
        (.ipv4Loopback(port: 7000), .ipv4Any(port: 7000), false),
        (.ipv6Loopback(port: 7000), .ipv4Loopback(port: 7000), true),
    ])
    func `two servers may listen at addresses that do not overlap`(
        first: SocketAddress, second: SocketAddress, areAllowed: Bool
    ) throws {
        try withSimulation { _ in
            let listener = try listen(first)
            do {
                try listen(second).close()
                #expect(areAllowed)
            } catch {
                #expect(!areAllowed && (error as? IOError)?.errno == .addressInUse)
            }
            listener.close()
        }
    }

    @Test func `a host with an IPv4 address that is mapped into IPv6 is reached by both`() throws {
        try withSimulation { world in
            let listener = try world.host("server", "::ffff:10.9.9.9").run {
                try listen(.ipv6Any(port: 7000))
            }
            for text in ["10.9.9.9:7000", "[::ffff:10.9.9.9]:7000"] {
                let client = Caller(Connection(to: try #require(SocketAddress(text))), sending: "x")
                world.time.runUntilIdle()
                #expect(client.answer == "x")
                client.connection.close()
            }
            listener.close()
        }
    }

    @Test(arguments: ["10.1.0.1", "fd01::1", "db.example.", "DB.example"])
    func `numeric addresses and complete names are found`(host: String) throws {
        try withSimulation { world in
            _ = world.host("db.example", "10.1.0.1", "fd01::1")
            var answer: Result<[SocketAddress], IOError>?
            Resolver.resolve(host: host, service: "80") { answer = $0 }
            world.time.runUntilIdle()
            let addresses = try #require(try answer?.get().map(\.description))
            let all = ["10.1.0.1:80", "[fd01::1]:80"]
            #expect(addresses == (host.contains("ample") ? all : all.filter { $0.contains(host) }))
        }
    }

    @Test func `failures of lookups do not concern numeric addresses`() {
        withSimulation { world in
            world.faults.failedLookups = 1
            var answer: Result<[SocketAddress], IOError>?
            Resolver.resolve(host: "10.1.0.1", service: "http") { answer = $0 }
            world.time.runUntilIdle()
            #expect((try? answer?.get())?.map(\.description) == ["10.1.0.1:80"])
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
                    connection.open(delegate: Echo())
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
            let client = Caller(Connection(to: server.addresses[0].with(port: 7000)))
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

    @Test(arguments: [true, false])
    func `a reset is found by the end that has ended its output`(isClient: Bool) throws {
        try withSimulation { world in
            var served: Caller?
            let listener = try listen(.ipv4Any(port: 7000)) { served = Caller($1, sending: "served") }
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "hello")
            world.time.runUntilIdle()
            let server = try #require(served)
            let (ending, other) = isClient ? (client, server) : (server, client)
            try ending.connection.sendEnd()
            world.time.runUntilIdle()
            #expect(other.hasEnded && !ending.hasEnded)
            world.faults.resets = 1
            try other.connection.send("the rest")
            world.time.runUntilIdle()
            #expect(ending.error == .connectionReset && !ending.hasEnded)
            for end in [client, server] { end.connection.close() }
            listener.close()
        }
    }

    @Test func `the end of one output leaves the bytes and the end of the other`() throws {
        try withSimulation { world in
            var served: Caller?
            let listener = try listen(.ipv4Any(port: 7000)) { served = Caller($1) }
            var options = ConnectionOptions()
            options.writeBufferSize = 2_000_000
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000), options: options))
            world.time.runUntilIdle()
            let server = try #require(served)
            // More than there is room for, so that the end has to wait.
            let text = String(repeating: "x", count: 1_000_000)
            try client.connection.send(text)
            try client.connection.sendEnd()
            world.time.runUntilIdle()
            #expect(server.answer == text && server.hasEnded && server.error == nil)
            // The buffer has closed a duplicate of the descriptor.
            #expect(client.connection.localAddress == server.connection.peerAddress)
            try server.connection.send("the answer")
            server.connection.close()
            world.time.runUntilIdle()
            #expect(client.answer == "the answer" && client.hasEnded && client.error == nil)
            client.connection.close()
            listener.close()
        }
    }

    @Test func `each of many clients is served though the backlog is full`() throws {
        try withSimulation { world in
            var options = Listener.Options()
            options.backlog = 1
            let listener = try Listener(.ipv4Any(port: 7000), options: options) { _, connection in
                connection.open(delegate: Echo())
            } acceptErrors: { _, _ in
            }
            try RunLoop.current.add(listener, forMode: .common)
            let clients = (0..<40).map { _ in
                Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "x")
            }
            world.time.advance(by: .seconds(2))
            #expect(clients.count { $0.answer == "x" } == clients.count)
            for client in clients { client.connection.close() }
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
                $1.open(delegate: Echo(), forMode: mode)
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

    @Test func `a timeout counts in virtual time, also late in a simulation, and begins anew`() throws {
        try withSimulation { world in
            world.time.advance(by: .seconds(3600))
            let listener = try listen(.ipv4Any(port: 7000))
            let connection = Connection(to: .ipv4Loopback(port: 7000))
            connection.idleTimeout = .seconds(10)
            let client = Caller(connection, sending: "hello")
            for _ in 0..<3 {
                world.time.advance(by: .seconds(9))
                #expect(client.hasOpened && client.error == nil)
                try connection.send("x")
            }
            let start = world.time.now
            client.onEvent = { [unowned client] in
                if client.error != nil { #expect(start.duration(to: world.time.now) == .seconds(10)) }
            }
            world.time.advance(by: .seconds(60))
            #expect(client.error == .timedOut && client.answer == "helloxxx")
            listener.close()
        }
    }

    @Test func `a write timeout begins anew whenever the peer takes bytes`() throws {
        final class Silent: ConnectionDelegate {
            func connection(_ connection: Connection, handle event: Connection.Event) {}
        }
        try withSimulation { world in
            var served: Connection?
            let listener = try listen(.ipv4Any(port: 7000)) { _, connection in
                served = connection
                connection.open(delegate: Silent())
            }
            var options = ConnectionOptions()
            options.writeBufferSize = 16_000_000
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000), options: options))
            world.time.advance(by: .seconds(1))
            client.connection.writeTimeout = .milliseconds(1500)
            try client.connection.send([UInt8](repeating: 1, count: 8_000_000))
            var count = 0
            let timer = Timer.scheduled(every: .seconds(1)) { _ in
                count += served?.receive(upTo: 1_000_000).count ?? 0
            }
            world.time.advance(by: .seconds(7))
            #expect(client.error == nil && count > 500_000)
            timer.invalidate()
            world.time.advance(by: .seconds(3))
            #expect(client.error == .timedOut)
            served?.close()
            listener.close()
        }
    }

    @Test func `a timeout passes in virtual time`() throws {
        try withSimulation { world in
            let listener = try listen(.ipv4Any(port: 7000)) { served, connection in
                connection.idleTimeout = .seconds(300)
                connection.open(delegate: Echo())
            }
            let start = world.time.now
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "hello")
            world.time.runUntilIdle()
            #expect(client.hasEnded && start.duration(to: world.time.now) >= .seconds(300))
            client.connection.close()
            listener.close()
        }
    }
}
