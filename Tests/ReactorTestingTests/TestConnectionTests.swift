import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct TestConnectionTests {
    /// Calls `body` with virtual time and both ends of a connection.
    private func withEnds(
        seed: UInt64 = 0, _ body: (VirtualTime, _ client: Ends, _ server: Ends) throws -> Void
    ) throws {
        try withVirtualTime { time in
            let (client, server) = try Ends.pair(seed: seed)
            try withExtendedLifetime((client, server)) { try body(time, client, server) }
        }
    }

    @Test func `bytes arrive at the other end, and the end after them`() throws {
        try withEnds { time, client, server in
            client.write("hello")
            try client.connection.output.shutDown()
            time.runUntilIdle()
            #expect(server.text == "hello")
            #expect(server.events.last == .endEncountered)
        }
    }

    @Test func `an end that has ended its output can still be closed`() throws {
        try withEnds { time, client, server in
            try client.connection.output.shutDown()
            time.runUntilIdle()
            client.connection.close(afterBytes: 0)
            server.write("too late")
            time.runUntilIdle()
            #expect(client.text == "" && server.events.last == .errorOccurred)
        }
    }

    @Test func `bytes arrive as much later as the sender's latency says`() throws {
        try withEnds { time, client, server in
            server.connection.latency = .seconds(3)
            client.write("there")
            server.write("back")
            time.advance(by: .milliseconds(2999))
            #expect((server.text, client.text) == ("there", ""))
            time.advance(by: .milliseconds(1))
            #expect(client.text == "back")
        }
    }

    @Test(arguments: seeds(20)) func `bytes arrive in pieces of the sizes that are asked for`(seed: UInt64)
        throws
    {
        try withEnds(seed: seed) { time, client, server in
            client.connection.chunkSizes = 1...7
            client.write(String(repeating: "x", count: 100))
            time.runUntilIdle()
            #expect(server.chunks.map(\.count).reduce(0, +) == 100)
            #expect(server.chunks.dropLast().allSatisfy { (1...7).contains($0.count) })
        }
    }

    @Test func `a stalled end passes nothing on until it is resumed`() throws {
        try withEnds { time, client, server in
            client.connection.stall()
            client.write("late")
            time.advance(by: .seconds(60))
            #expect(server.text == "")
            client.connection.resume()
            time.advance(by: .zero)
            #expect(server.text == "late")
        }
    }

    @Test func `a connection that is cut delivers exactly the bytes before the cut`() throws {
        try withEnds { time, client, server in
            client.connection.close(afterBytes: 3)
            client.write("hello")
            time.runUntilIdle()
            #expect(server.text == "hel")
            #expect(server.events.last == .endEncountered)
            server.write("lost")
            time.runUntilIdle()
            #expect(server.connection.output.streamStatus == .error && client.text == "")
        }
    }

    @Test func `the seed of virtual time decides on the sizes of chunks`() throws {
        var sizes: Set<[Int]> = []
        for seed in [1, 1, 2] as [UInt64] {
            try withVirtualTime(seed: seed) { time in
                let (client, server) = try Ends.pair(seed: nil)
                client.connection.chunkSizes = 1...7
                client.write(String(repeating: "x", count: 100))
                time.runUntilIdle()
                sizes.insert(server.chunks.map(\.count))
            }
        }
        #expect(sizes.count == 2)
    }

    @Test func `a reset fails both ends after what had arrived`() throws {
        try withEnds { time, client, server in
            client.write("before")
            time.runUntilIdle()
            client.connection.reset()
            time.runUntilIdle()
            #expect(server.text == "before")
            #expect(client.events.last == .errorOccurred && server.events.last == .errorOccurred)
        }
    }

    @Test func `an end takes the options of a socket, and its timeouts are in virtual time`() throws {
        try withEnds { time, client, server in
            client.connection.connection.idleTimeout = .seconds(300)
            let start = time.now
            client.onError = { #expect(start.duration(to: time.now) == .seconds(300)) }
            time.advance(by: .seconds(3600))
            #expect(client.events.last == .errorOccurred)
        }
    }

    @Test func `more than a relay keeps arrives complete`() throws {
        try withEnds { time, client, server in
            client.pending = [UInt8](repeating: 7, count: 3_000_000)
            time.runUntilIdle()
            #expect(server.chunks.map(\.count).reduce(0, +) == 3_000_000)
        }
    }
}

@Suite(.runLoop) struct SeedTests {
    /// The order in which four streams are served that are ready at once, on a new loop: closed connections of an earlier
    /// order would be ready, too.
    private func order(
        _ seed: UInt64, _ run: @escaping @Sendable (VirtualTime) -> Void = { $0.runUntilIdle() }
    ) throws
        -> [Int]
    {
        try onAThread {
            try withVirtualTime(seed: seed) { time in
                let pairs = try (0..<4).map { _ in try Ends.pair() }
                time.runUntilIdle()
                var order: [Int] = []
                for (index, pair) in pairs.enumerated() { pair.1.onBytes = { order.append(index) } }
                for pair in pairs { pair.0.write("x") }
                run(time)
                return order
            }
        }
    }

    @Test func `a seed gives the same order each time`() throws {
        for seed in 0..<UInt64(5) { #expect(try order(seed) == order(seed)) }
    }

    @Test func `seeds try different orders of what is ready at once`() throws {
        let orders = Set(try (0..<UInt64(20)).map { try order($0) })
        #expect(orders.count > 5)
        #expect(orders.allSatisfy { $0.sorted() == [0, 1, 2, 3] })
    }

    @Test func `seeds decide on the order in passes that do not wait, too`() throws {
        let orders = Set(try (0..<UInt64(20)).map { try order($0) { $0.advance(by: .zero) } })
        #expect(orders.count > 5)
        #expect(orders.allSatisfy { $0.sorted() == [0, 1, 2, 3] })
    }

    /// The orders in which the loops of two threads serve four pipes that are ready at once, one loop after the other.
    private func orders(_ seed: UInt64, beginningWith first: Int) throws -> [[Int]] {
        try onAThread {
            let pipes = try (0..<4).map { _ in try TestPipe("x") }
            return try withVirtualTime(seed: seed) { _ in
                let threads = try (0..<2).map { try RunLoopThread(name: "worker \($0)") }
                let orders = Shared([[Int]](repeating: [], count: 2))
                for number in [first, 1 - first] {
                    threads[number].runLoop.perform {
                        for (index, pipe) in pipes.enumerated() {
                            let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
                                source.cancel()
                                orders.update { $0[number].append(index) }
                            }
                            try? RunLoop.current.add(source, forMode: .default)
                        }
                    }
                    orders.wait { $0[number].count == 4 ? () : nil }
                }
                for thread in threads { thread.stop() }
                return orders.value
            }
        }
    }

    @Test func `a loop's order does not depend on which thread comes first`() throws {
        for seed in 0..<UInt64(5) {
            #expect(try orders(seed, beginningWith: 0) == orders(seed, beginningWith: 1))
        }
    }
}

/// One end of a test's connection, and what it receives.
private final class Ends: StreamDelegate {
    let connection: TestConnection
    var events: [Stream.Event] = []
    var chunks: [[UInt8]] = []
    var pending: [UInt8] = []
    var onBytes: () -> Void = {}
    var onError: () -> Void = {}

    var text: String { String(decoding: chunks.joined(), as: UTF8.self) }

    init(_ connection: TestConnection) {
        self.connection = connection
        for stream in [connection.input, connection.output] as [Stream] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .default)
            stream.open()
        }
    }

    static func pair(seed: UInt64? = 0) throws -> (Ends, Ends) {
        let (first, second) = try TestConnection.pair(seed: seed)
        return (Ends(first), Ends(second))
    }

    func write(_ text: String) {
        pending += text.utf8
        flush()
    }

    private func flush() {
        while !pending.isEmpty, connection.output.hasSpaceAvailable {
            let count = connection.output.write(pending, maxLength: pending.count)
            guard count > 0 else { return }
            pending.removeFirst(count)
        }
    }

    func stream(_ aStream: Stream, handle event: Stream.Event) {
        events.append(event)
        switch event {
        case .hasBytesAvailable:
            var bytes = [UInt8](repeating: 0, count: 65_536)
            let count = connection.input.read(&bytes, maxLength: bytes.count)
            guard count > 0 else { return }
            chunks.append(Array(bytes[..<count]))
            onBytes()
        case .hasSpaceAvailable: flush()
        case .errorOccurred: onError()
        default: break
        }
    }
}
