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
}
