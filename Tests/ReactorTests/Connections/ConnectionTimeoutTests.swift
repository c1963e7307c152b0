import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Connections in virtual time: what a test waits for passes at once, and at the nanosecond.
@Suite(.runLoop) struct ConnectionTimeoutTests {
    /// Sends `texts`, each after `interval`.
    private func send(
        _ texts: [String], every interval: Duration, to connection: Connection, on clock: RunLoop.Clock
    ) async throws {
        for text in texts {
            try await clock.sleep(for: interval)
            try await connection.write(text)
        }
    }

    // MARK: Sequences

    enum Sequence: CaseIterable, Sendable {
        case lines, chunks, bytes

        /// How many elements come before the error, which must be that of the timeout.
        nonisolated(nonsending) func count(of connection: Connection, timeout: Duration) async -> Int {
            var count = 0
            let error = await thrownError {
                switch self {
                case .lines: for try await _ in connection.lines(timeout: timeout) { count += 1 }
                case .chunks: for try await _ in connection.chunks(timeout: timeout) { count += 1 }
                case .bytes:
                    for try await _ in connection.streams.input.bytes(timeout: timeout) { count += 1 }
                }
            }
            #expect((error as? IOError)?.reason == .waitTimedOut && error?.errno == .timedOut)
            return count
        }
    }

    @Test(arguments: Sequence.allCases)
    func `each element of a sequence has the whole timeout, and the connection stays`(sequence: Sequence)
        async throws
    {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (start, clock, other) = (time.now, time.loop.clock(), client.connection)
            async let sent: Void = send(["\n", "\n", "\n"], every: .seconds(6), to: other, on: clock)
            #expect(await sequence.count(of: server.connection, timeout: .seconds(10)) == 3)
            #expect(time.now == start + .seconds(28))
            try await sent
            try await other.write("more")
            #expect(try await server.connection.read(exactly: 4) == Array("more".utf8))
        }
    }

    @Test func `the time that the body takes is not the next element's`() async throws {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (clock, other) = (time.loop.clock(), client.connection)
            async let sent: Void = send(["a\n", "b\n"], every: .seconds(30), to: other, on: clock)
            var lines: [String] = []
            for try await line in server.connection.lines(timeout: .seconds(31)) {
                lines.append(line)
                if lines.count == 2 { break }
                try await clock.sleep(for: .seconds(600))
            }
            #expect(lines == ["a", "b"])
            try await sent
        }
    }

    @Test func `the parts of a line do not renew its timeout, and stay with the connection`() async throws {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (start, clock, other) = (time.now, time.loop.clock(), client.connection)
            async let sent: Void = send(["x", "y", "z", "\n"], every: .seconds(3), to: other, on: clock)
            #expect(await Sequence.lines.count(of: server.connection, timeout: .seconds(10)) == 0)
            #expect(time.now == start + .seconds(10))
            try await sent
            for try await line in server.connection.lines(timeout: .seconds(10)) {
                #expect(line == "xyz")
                break
            }
        }
    }

    // MARK: Idle connections

    /// What a read that fails throws.
    nonisolated(nonsending) private func failure(of connection: Connection) async -> IOError? {
        await thrownError { while try await connection.read() != nil {} } as? IOError
    }

    enum Reading: CaseIterable, Sendable { case read, chunks, lines }

    @Test(arguments: Reading.allCases)
    func `a task that works on a request is not idle, and its next read has the whole time`(reading: Reading)
        async throws
    {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (start, clock, connection) = (time.now, time.loop.clock(), server.connection)
            connection.idleTimeout = .seconds(30)
            func work() async throws {
                try await connection.write("answer\n")
                // No transfer begins the time before the next read does.
                try await clock.sleep(for: .seconds(85))
                #expect(connection.state == .open)
            }
            try await client.connection.write("request\n")
            let error: IOError?
            switch reading {
            case .read:
                _ = try await connection.read()
                try await work()
                error = await failure(of: connection)
            case .chunks:
                error =
                    await thrownError { for try await _ in connection.chunks() { try await work() } }
                    as? IOError
            case .lines:
                error =
                    await thrownError { for try await _ in connection.lines() { try await work() } }
                    as? IOError
            }
            #expect(error?.reason == .system(.timedOut))
            #expect(time.now == start + .seconds(85 + 30))
            #expect(try await client.connection.read(exactly: 7) == Array("answer\n".utf8))
        }
    }

    @Test func `a task that waits in vain is idle, whatever it has waited for before`() async throws {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (start, connection) = (time.now, server.connection)
            connection.idleTimeout = .seconds(30)
            for _ in 0..<2 {
                let early = await thrownError { _ = try await connection.read(timeout: .seconds(11)) }
                #expect((early as? IOError)?.reason == .waitTimedOut)
            }
            #expect(await failure(of: connection)?.reason == .system(.timedOut))
            #expect(time.now == start + .seconds(30))
            withExtendedLifetime(client) {}
        }
    }

    @Test
    func `bytes that the peer does not accept make a connection idle, though its task does something else`()
        async throws
    {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (clock, connection) = (time.loop.clock(), server.connection)
            server.stall()
            try await client.connection.write("request\n")
            _ = try await connection.read()
            connection.idleTimeout = .seconds(30)
            let written = await thrownError {
                try await connection.write([UInt8](repeating: 1, count: 4_000_000), timeout: .seconds(600))
            }
            #expect((written as? IOError)?.reason == .system(.timedOut))
            try await clock.sleep(for: .seconds(1))
            #expect(connection.state == .failed)
        }
    }

    /// Takes bytes only when it is told to.
    private final class Lazy: ConnectionDelegate {
        func connection(_ connection: Connection, handle event: Connection.Event) {}
    }

    @Test func `a delegate that has bytes to receive is not idle, and one that has received them is`() throws
    {
        try withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let connection = server.connection
            connection.idleTimeout = .seconds(30)
            connection.open(delegate: Lazy())
            client.connection.open(delegate: Lazy())
            time.advance(by: .seconds(1))
            try client.connection.send("request")
            time.advance(by: .seconds(100))
            #expect(connection.state == .open)
            #expect(connection.receive() == Array("request".utf8))
            time.advance(by: .seconds(29))
            #expect(connection.state == .open)
            time.advance(by: .seconds(2))
            #expect((connection.error as? IOError)?.errno == .timedOut)
        }
    }

    @Test func `a peer that has ended its direction may wait for as long as the answer takes`() throws {
        try withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let connection = server.connection
            connection.idleTimeout = .seconds(30)
            connection.open(delegate: Lazy())
            client.connection.open(delegate: Lazy())
            time.advance(by: .seconds(1))
            try client.connection.sendEnd()
            time.advance(by: .seconds(1))
            #expect(connection.receive().isEmpty)
            time.advance(by: .seconds(100))
            #expect(connection.state == .open)
            try connection.send("answer")
            connection.close()
            time.runUntilIdle()
            #expect(client.connection.receive() == Array("answer".utf8))
        }
    }

    @Test func `what has come is no fault of the peer's, though the loop does not serve the connection`()
        throws
    {
        try withVirtualTime { time in
            let (peer, descriptor) = try SocketPeer.pair()
            let connection = Connection(descriptor: descriptor, options: .init(idleTimeout: .seconds(30)))
            connection.open(delegate: Lazy(), forMode: .default)
            time.advance(by: .seconds(1))
            peer.shutDown()
            // The end has come, and nothing has read it.
            let other = RunLoop.Mode("another")
            Timer.scheduled(after: .seconds(100), forMode: other) { _ in }
            time.runUntilIdle(inMode: other)
            #expect(connection.error == nil)
            connection.close()
        }
    }

    @Test func `a task is not idle while bytes wait that have come, whatever its loop does`() throws {
        try withVirtualTime { time in
            let (peer, descriptor) = try SocketPeer.pair()
            let connection = Connection(descriptor: descriptor, options: .init(idleTimeout: .seconds(30)))
            let loop = RunLoop.current
            let received = Answer<[UInt8]>()
            Task(executorPreference: loop.executor(inModes: [.default])) {
                received.give(try await connection.read(exactly: 7) ?? [])
            }
            time.advance(by: .seconds(1))
            peer.send("request")
            let other = RunLoop.Mode("another")
            Timer.scheduled(after: .seconds(100), forMode: other) { _ in }
            time.runUntilIdle(inMode: other)
            time.advance(by: .milliseconds(1))
            #expect(received.wait() == Array("request".utf8) && connection.error == nil)
            connection.close()
        }
    }

    @Test func `tasks that only write a connection are not idle between two writes`() async throws {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (clock, connection) = (time.loop.clock(), client.connection)
            connection.idleTimeout = .seconds(30)
            for _ in 0..<3 {
                try await connection.write("x")
                try await clock.sleep(for: .seconds(100))
            }
            #expect(try await server.connection.read(exactly: 3) == Array("xxx".utf8))
        }
    }

    @Test(arguments: [nil, Duration.seconds(5)])
    func `an attempt to connect ends after 75 seconds, or as the options say`(timeout: Duration?) throws {
        try withVirtualTime { time in
            let full = try FullServer()
            let options = timeout.map { Connection.Options(connectTimeout: $0) } ?? .init()
            let connection = Connection(to: full.address, options: options)
            connection.open(delegate: Lazy())
            time.advance(by: (timeout ?? .seconds(75)) - .milliseconds(1))
            #expect(connection.state == .opening)
            time.advance(by: .milliseconds(2))
            #expect((connection.error as? IOError)?.reason == .system(.timedOut))
        }
    }

    @Test func `a connection that is being made is not idle`() throws {
        try withVirtualTime { time in
            let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0), backlog: 0)
            // The backlog has room for one connection.
            let first = try SocketPeer(connectedTo: listener.localAddress)
            let connection = Connection(
                to: try listener.localAddress, options: .init(connectTimeout: .seconds(1000)))
            connection.open(delegate: Lazy())
            connection.idleTimeout = .seconds(5)
            connection.writeTimeout = .seconds(5)
            time.advance(by: .seconds(100))
            #expect(connection.state == .opening && connection.error == nil)
            connection.close()
            withExtendedLifetime(first) {}
        }
    }

    // MARK: Changed timeouts

    @Test func `a timeout is changed between two reads, while a task waits, and ended`() async throws {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (start, clock, connection) = (time.now, time.loop.clock(), server.connection)
            connection.idleTimeout = .seconds(5)
            #expect(connection.idleTimeout == .seconds(5) && connection.writeTimeout == nil)
            async let sent: Void = send(
                ["head", "body"], every: .seconds(4), to: client.connection, on: clock)
            #expect(try await connection.read(exactly: 4) == Array("head".utf8))
            connection.idleTimeout = .seconds(60)
            #expect(try await connection.read(exactly: 4) == Array("body".utf8))
            try await sent
            async let failed = failure(of: connection)
            try await clock.sleep(for: .seconds(50))
            connection.idleTimeout = nil
            try await clock.sleep(for: .seconds(100))
            #expect(connection.state == .open)
            connection.idleTimeout = .seconds(7)
            #expect(await failed?.reason == .system(.timedOut))
            #expect(time.now == start + .seconds(4 + 4 + 50 + 100 + 7))
        }
    }

    @Test func `a write timeout that is set while bytes wait counts from then on`() async throws {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (start, clock, connection) = (time.now, time.loop.clock(), client.connection)
            client.stall()
            async let failed = thrownError {
                try await connection.write([UInt8](repeating: 1, count: 4_000_000))
            }
            try await clock.sleep(for: .seconds(100))
            connection.writeTimeout = .seconds(20)
            #expect((await failed as? IOError)?.reason == .system(.timedOut))
            #expect(time.now == start + .seconds(120))
            withExtendedLifetime(server) {}
        }
    }

    @Test func `a timeout that is not positive traps with a message`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            Connection(to: .ipv4Loopback(port: 9)).idleTimeout = .zero
        }
        #expect(result.message.contains("A timeout of a connection must be positive"))
    }
}
