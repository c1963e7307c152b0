import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ConnectionTaskTests {
    private let home = LoopThread()

    private func pair(_ options: Connection.Options = .init()) throws -> (Connection, SocketPeer) {
        let (peer, other) = try SocketPeer.pair()
        return (Connection(descriptor: other, options: options), peer)
    }

    @Test(arguments: TaskPlace.allCases)
    func `a task connects, writes, finishes and reads`(place: TaskPlace) async throws {
        let answer = Answer<[UInt8]?>()
        let host = try SocketHost(.ipv4) { peer in
            peer.send("question\n")
            answer.give(peer.receiveToEnd())
            peer.send("more")
            peer.close()
        }
        let address = host.address
        try await place.run { _ in
            let connection = try await Connection.connect(to: address)
            for try await line in connection.lines() {
                try await connection.write("the answer to \(line)")
                try await connection.finish()
                break
            }
            #expect(try await connection.read(exactly: 4) == Array("more".utf8))
            #expect(try await connection.read() == nil)
            connection.close()
        }
        #expect(answer.wait().map { String(bytes: $0) } == "the answer to question")
        withExtendedLifetime(host) {}
    }

    @Test(arguments: TaskPlace.allCases)
    func `a task appends what it reads to its buffer, and writes a part of it`(place: TaskPlace) async throws
    {
        let (connection, peer) = try pair()
        try await place.run { _ in
            var buffer = Array("line ".utf8)
            peer.send("abcdef")
            #expect(try await connection.read(into: &buffer, upTo: 4) == 4)
            #expect(try await connection.read(into: &buffer) == 2)
            let late = await thrownError {
                _ = try await connection.read(into: &buffer, timeout: .milliseconds(1))
            }
            #expect((late as? IOError)?.reason == .waitTimedOut)
            #expect(String(bytes: buffer) == "line abcdef")
            try await connection.write(buffer.span.bytes.extracting(5..<8))
            peer.shutDown()
            #expect(try await connection.read(into: &buffer) == 0)
            try await connection.finish()
        }
        #expect(peer.receiveToEnd() == Array("abc".utf8))
    }

    @Test(arguments: TaskPlace.allCases)
    func `connecting is refused, takes too long, or is cancelled`(place: TaskPlace) async throws {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0), backlog: 0)
        let (home, address) = (home, try listener.localAddress)
        // The backlog has room for one connection.
        let first = try await Connection.connect(to: address)
        for round in 0..<20 {
            let task = place.start(on: home.loop) { _ = try await Connection.connect(to: address) }
            for _ in 0..<round { await Task.yield() }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
        }
        try await place.run { _ in
            let late = await thrownError {
                let options = Connection.Options(connectTimeout: .milliseconds(5))
                _ = try await Connection.connect(to: address, options: options)
            }
            #expect(late?.errno == .timedOut)
            listener.close()
            let refused = await thrownError { _ = try await Connection.connect(to: address) }
            #expect(refused?.errno == .connectionRefused)
        }
        first.close()
    }

    @Test func `the writes of many tasks are whole, and each task's are in order`() async throws {
        let (connection, peer) = try pair()
        peer.narrow()
        let (taskCount, writeCount, size) = (8, 20, 3000)
        let received = Answer<[UInt8]?>()
        let reader = try JoinableThread { received.give(peer.receiveToEnd()) }
        try await withThrowingTaskGroup { group in
            for number in 0..<taskCount {
                group.addTask {
                    for round in 0..<writeCount {
                        let byte = UInt8(number << 5 | round)
                        try await connection.write([UInt8](repeating: byte, count: size))
                    }
                }
            }
            try await group.waitForAll()
        }
        try await connection.finish()
        reader.join()
        let bytes = try #require(received.wait())
        #expect(bytes.count == taskCount * writeCount * size)
        var next = [UInt8](repeating: 0, count: taskCount)
        for start in stride(from: 0, to: bytes.count, by: size) {
            let record = bytes[start..<start + size]
            #expect(Set(record).count == 1)
            let (number, round) = (Int(record.first! >> 5), record.first! & 31)
            #expect(round == next[number])
            next[number] += 1
        }
    }

    @Test func `a write that waits for its turn is cancelled or times out without a trace`() async throws {
        let (connection, peer) = try pair()
        let first = Task { try await connection.write([UInt8](repeating: 1, count: 4_000_000)) }
        // The first one has begun when the peer has bytes.
        #expect(peer.receive(upTo: 1) == [1])
        let second = Task { try await connection.write("cancelled") }
        let late = await thrownError { try await connection.write("late", timeout: .milliseconds(1)) }
        #expect(late?.errno == .timedOut)
        for _ in 0..<100 {
            await #expect(throws: IOError.self) {
                try await connection.write("late", timeout: .nanoseconds(1))
            }
        }
        second.cancel()
        await #expect(throws: CancellationError.self) { try await second.value }
        #expect(throws: IOError.self) { try connection.send("in between") }
        let received = Answer<[UInt8]?>()
        let reader = try JoinableThread { received.give(peer.receiveToEnd()) }
        try await first.value
        try await connection.finish()
        reader.join()
        #expect(received.wait()?.count == 3_999_999)
    }

    @Test(arguments: [true, false])
    func `a write that ends after some of its bytes fails the connection`(isCancelled: Bool) async throws {
        let (connection, peer) = try pair()
        let task = Task {
            try await connection.write(
                [UInt8](repeating: 1, count: 4_000_000), timeout: isCancelled ? nil : .milliseconds(50))
        }
        let reading = Task { _ = try await connection.read() }
        #expect(peer.receive(upTo: 1) == [1])
        if isCancelled { task.cancel() }
        await #expect(throws: (any Error).self) { try await task.value }
        await #expect(throws: IOError.self) { try await reading.value }
        await #expect(throws: IOError.self) { try await connection.write("next") }
        #expect(connection.state == .failed)
        peer.close()
    }

    @Test func `an iteration continues after its connection is released`() async throws {
        let (peer, other) = try SocketPeer.pair()
        let chunks = Connection(descriptor: other).chunks()
        peer.send([1])
        var iterator = chunks.makeAsyncIterator()
        #expect(try await iterator.next() == [1])
        #expect(peer.receiveNow(upTo: 1).isEmpty && errno == EAGAIN)
        peer.close()
        #expect(try await iterator.next() == nil)
    }

    @Test func `both directions are served by child tasks of an actor`() async throws {
        let (connection, peer) = try pair()
        let resident = Chat(on: home.executor)
        let served = Task { try await resident.serve(connection) }
        #expect(peer.receive(5) == Array("hello".utf8))
        peer.send("one\ntwo\n")
        peer.shutDown()
        try await served.value
        #expect(await resident.lines == ["one", "two"])
    }

    @Test func `a connection that is released closes its socket`() async throws {
        let peer = try await {
            let (connection, peer) = try pair()
            try await connection.write("last words")
            return peer
        }()
        #expect(peer.receiveToEnd() == Array("last words".utf8))
    }

    @Test func `closing ends both directions of a connection that was only read`() async throws {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let connection = Connection(to: try listener.localAddress)
        let reading = Task { try await connection.chunks().first { _ in true } }
        let peer = try listener.accept()
        peer.send([1])
        #expect(try await reading.value == [1])
        connection.close()
        #expect(connection.descriptor == nil && peer.receiveToEnd() == [])
    }

    @Test func `a connection is closed that nothing has opened`() throws {
        let (connection, peer) = try pair()
        connection.close()
        #expect(connection.descriptor == nil && peer.receiveToEnd() == [])
    }

    @Test func `what remains to be written after the peer's last line is written`() async throws {
        let (connection, peer) = try pair()
        peer.send("one\ntwo\n")
        peer.shutDown()
        let (lines, queue) = AsyncStream.makeStream(of: String.self)
        async let writing: Void = {
            for await line in lines {
                await Task.yield()
                try await connection.write("\(line)!")
            }
        }()
        for try await line in connection.lines() { queue.yield(line) }
        queue.finish()
        try await writing
        connection.close()
        #expect(peer.receiveToEnd().map { String(bytes: $0) } == "one!two!")
    }

    @Test func `a read within an iteration over the same connection fails, and takes nothing`() async throws {
        let (connection, peer) = try pair()
        peer.send("header\nbody")
        peer.shutDown()
        for try await line in connection.lines() {
            #expect(line == "header")
            let error = await thrownError { _ = try await connection.read(exactly: 4) }
            #expect(error?.errno == .resourceBusy)
            break
        }
        #expect(try await connection.read(exactly: 4) == Array("body".utf8))
    }

    @Test func `a call's timeout leaves the connection as it was, a limit of the connection ends it`()
        async throws
    {
        let (connection, peer) = try pair()
        let early = await thrownError { _ = try await connection.read(timeout: .milliseconds(1)) }
        #expect((early as? IOError)?.reason == .waitTimedOut && early?.errno == .timedOut)
        peer.send("late")
        #expect(try await connection.read(exactly: 4) == Array("late".utf8))
        let (idle, other) = try pair(.init(idleTimeout: .milliseconds(1)))
        let failed = await thrownError { _ = try await idle.read() }
        #expect((failed as? IOError)?.reason == .system(.timedOut))
        withExtendedLifetime(other) {}
    }

    @Test func `closing ends the calls of other tasks`() async throws {
        let (connection, peer) = try pair()
        let reading = Task { _ = try await connection.read() }
        let writing = Task { try await connection.write([UInt8](repeating: 1, count: 4_000_000)) }
        #expect(peer.receive(upTo: 1) == [1])
        let waiting = Task { try await connection.write("behind it") }
        connection.close()
        await #expect(throws: IOError.self) { try await reading.value }
        await #expect(throws: IOError.self) { try await writing.value }
        await #expect(throws: IOError.self) { try await waiting.value }
        peer.close()
    }
}

/// Greets the peer while it receives lines.
private actor Chat {
    var lines: [String] = []
    private let executor: RunLoop.Executor
    nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    init(on executor: RunLoop.Executor) { self.executor = executor }

    func serve(_ connection: Connection) async throws {
        async let _ = greet(connection)
        for try await line in connection.lines() { lines.append(line) }
        connection.close()
    }

    private func greet(_ connection: Connection) async throws {
        try await connection.write("hello")
        try await Task.sleep(for: .seconds(600))
    }
}
