import Dispatch
import Reactor
import ReactorTestSupport
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// Flushes, ends and closes.
@Suite(.runLoop) struct SendQueueEndTests {
    @Test func `a flush waits for its message while later ones are dropped`() async throws {
        let sink = try await Sink(.connection, limit: 2_100_000, overflow: .dropOldest)
        let (queue, peer) = (sink.queue, try #require(sink.peer))
        let long = record(1, 200_000)
        try queue.send(long)
        let flush = Task.immediate {
            try await queue.flush()
            return queue.waitingByteCount
        }
        await Task.yield()
        for _ in 0..<10 { try queue.send(record(2, 8000)) }
        #expect(queue.droppedCount > 0)
        let rest = 10 - queue.droppedCount
        async let received = onItsOwnThread { peer.receive(long.count + rest * record(2, 8000).count).count }
        #expect(try await flush.value < long.count)
        #expect(try await received > long.count)
    }

    @Test func `a flush waits for all messages before it`() async throws {
        let sink = try await Sink(.connection, limit: 20_000_000)
        let (queue, peer, long) = (sink.queue, try #require(sink.peer), record(1, 800_000))
        for _ in 0..<2 { try queue.send(long) }
        let flush = Task.immediate {
            try await queue.flush()
            return queue.waitingByteCount
        }
        async let received = onItsOwnThread { peer.receive(2 * long.count).count }
        #expect(try await flush.value == 0)
        #expect(try await received == 2 * long.count)
    }

    @Test(arguments: Sink.Kind.allCases)
    func `finishing ends the output after the last message, and refuses further ones`(
        kind: Sink.Kind
    )
        async throws
    {
        let sink = try await Sink(kind)
        for number in 0..<100 { try sink.queue.send(record(number)) }
        try await sink.queue.finish()
        let received = try #require(await sink.receiveToEnd())
        #expect(numbers(received) == Array(0..<100))
        #expect(throws: (any Error).self) { try sink.queue.send("late") }
    }

    @Test func `a connection that is closed wakes the tasks that wait for its queue`() async throws {
        let sink = try await Sink(.connection)
        let (queue, connection) = (sink.queue, try #require(sink.connection))
        // Longer than the limit of a test.
        connection.writeTimeout = .seconds(1000)
        while (try? queue.send(record(0))) != nil {}
        let flush = Task.immediate { try await queue.flush() }
        let write = Task.immediate { try await queue.write(record(0)) }
        let other = Task.immediate { try await connection.write(record(0)) }
        connection.close()
        for task in [flush, write, other] { #expect(await thrownError { try await task.value } is IOError) }
        #expect(queue.droppedCount > 0 && queue.waitingByteCount == 0)
        connection.reset()
    }

    @Test func `a message that is being sent when the connection is closed counts as dropped`() async throws {
        let sink = try await Sink(.connection, limit: 20_000_000)
        let (queue, connection) = (sink.queue, try #require(sink.connection))
        try queue.send(record(1, 800_000))
        let flush = Task.immediate { try await queue.flush() }
        connection.close()
        #expect(await thrownError { try await flush.value } is IOError)
        #expect(queue.droppedCount == 1)
        connection.reset()
    }

    @Test func `a write that finds that the peer has gone throws`() async throws {
        let sink = try await Sink(.connection)
        sink.peer?.close()
        // A process that another test is just starting may hold the other end a moment longer.
        var error: (any Error)?
        while error == nil { error = await thrownError { try await sink.queue.write(record(0)) } }
        #expect(error is IOError)
    }

    @Test func `finishing sends what waits for room first, and refuses what comes later`() async throws {
        let sink = try await Sink(.connection)
        let (queue, peer) = (sink.queue, try #require(sink.peer))
        var sent = 0
        while (try? queue.send(record(sent))) != nil { sent += 1 }
        let first = sent
        // More than there is room for at once.
        let writes = (0..<50).map { number in
            Task.immediate { try await queue.write(record(first + number, 900)) }
        }
        let finish = Task.immediate { try await queue.finish() }
        let error = #expect(throws: IOError.self) { try queue.send(record(0)) }
        #expect(error?.errno == .brokenPipe)
        async let received = onItsOwnThread { peer.receiveToEnd() }
        try await finish.value
        for write in writes { try await write.value }
        #expect(try await numbers(received ?? []) == Array(0..<first + 50))
    }

    @Test func `a queue that cannot be finished in time accepts messages again`() async throws {
        let sink = try await Sink(.connection, overflow: .dropOldest)
        for number in 0..<20_000 { try sink.queue.send(record(number)) }
        let late = await thrownError { try await sink.queue.finish(timeout: .milliseconds(1)) } as? IOError
        #expect(late?.reason == .waitTimedOut)
        try sink.queue.send(record(0))
    }

    @Test func `a flush of a file waits for no message that is sent after it`() async throws {
        let (folder, pipe) = (TemporaryFolder(), try TestPipe())
        let file = try FileDescriptor.open(
            "\(folder.path)/log", .writeOnly, options: .create, permissions: .ownerReadWrite)
        let queue = SendQueue(to: OutputStream(descriptor: file, closeWhenDone: true), limit: 200_000)
        // From now on the file is as slow as the test wants.
        _ = try pipe.writeEnd.duplicate(as: file)
        try queue.send([UInt8](repeating: 1, count: 100_000))
        // The file's writer has begun.
        #expect(try read(1, from: pipe.readEnd) == 1)
        let flush = Task.immediate { try await queue.flush() }
        try queue.send([UInt8](repeating: 2, count: 100_000))
        #expect(try read(99_999, from: pipe.readEnd) == 1)
        try await flush.value
        #expect(try read(100_000, from: pipe.readEnd) == 2)
    }

    /// The last of the next `count` bytes.
    private func read(_ count: Int, from descriptor: FileDescriptor) throws -> UInt8 {
        var (bytes, left) = ([UInt8](repeating: 0, count: count), count)
        while left > 0 {
            left -= try bytes.withUnsafeMutableBytes { bytes in
                try descriptor.read(into: UnsafeMutableRawBufferPointer(rebasing: bytes[(count - left)...]))
            }
        }
        return bytes[count - 1]
    }

    @Test func `a queue and its connection that are released end if the peer takes nothing`() throws {
        try withVirtualTime { time in
            let (peer, other) = try SocketPeer.pair()
            weak var released: Connection?
            do {
                let connection = Connection(descriptor: other)
                let queue = SendQueue(to: connection)
                while (try? queue.send(record(0))) != nil {}
                released = connection
            }
            while released != nil { time.advance(by: .seconds(30)) }
            #expect(peer.receiveToEnd() != nil)
        }
    }

    @Test func `a peer may stall again once it has taken what a released queue had`() throws {
        try withVirtualTime { time in
            let (peer, other) = try SocketPeer.pair()
            let connection = Connection(descriptor: other)
            var count = 0
            do {
                let queue = SendQueue(to: connection)
                while (try? queue.send(record(count))) != nil { count += 1 }
            }
            #expect(numbers(peer.receive(count * record(0).count)) == Array(0..<count))
            waitUntil { (try? connection.send(record(0))) != nil }
            while (try? connection.send(record(0))) != nil {}
            time.advance(by: .seconds(3600))
            #expect(connection.error == nil)
            connection.reset()
        }
    }

    /// Uses the connection when it is released.
    private final class UsingKey: Hashable, Sendable {
        let connection: Connection

        init(_ connection: Connection) { self.connection = connection }

        deinit { try? connection.send("") }

        static func == (left: UsingKey, right: UsingKey) -> Bool { left === right }

        func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
    }

    @Test func `a queue that sends once another thread has sent calls nothing that holds the connection`()
        async throws
    {
        let (peer, other) = try SocketPeer.pair()
        let connection = Connection(descriptor: other, options: .init(writeBufferSize: 10_000_000))
        try await connection.open()
        let queue = SendQueue(to: connection)
        let reader = try JoinableThread { _ = peer.receiveToEnd() }
        var hasWaited = false
        while !hasWaited {
            let hasEnded = Shared(false)
            // Copying so much takes long enough for another thread to come in between.
            let sender = try JoinableThread {
                try? connection.send([UInt8](repeating: 0, count: 5_000_000))
                hasEnded.value = true
            }
            while !hasWaited, !hasEnded.value {
                try queue.send([1], replacing: UsingKey(connection))
                hasWaited = queue.waitingByteCount > 0
            }
            sender.join()
            try await connection.flush()
        }
        try await queue.flush()
        connection.close()
        reader.join()
    }

    private final class Silent: ConnectionDelegate {
        func connection(_ connection: Connection, handle event: Connection.Event) {}
    }

    @Test func `the queue of a connection with a delegate is finished`() async throws {
        let home = LoopThread()
        let (peer, other) = try SocketPeer.pair()
        let connection = Connection(descriptor: other)
        home.loop.performSynchronously { connection.open(delegate: Silent()) }
        let queue = SendQueue(to: connection)
        waitUntil { (try? queue.send("first")) != nil }
        try await queue.finish()
        #expect(peer.receiveToEnd() == Array("first".utf8))
        try await queue.finish()  // once more
        connection.close()
    }

    @Test func `the end of a task's loop ends its wait for a queue`() async throws {
        let sink = try await Sink(.connection)
        let queue = sink.queue
        while (try? queue.send(record(0))) != nil {}
        let thread = try RunLoopThread(name: "queue")
        let waits = [
            Task(executorPreference: thread.executor) { try await queue.flush() },
            Task(executorPreference: thread.executor) { try await queue.write(record(0)) },
        ]
        await Task(executorPreference: thread.executor) {}.value
        await thread.shutDown()
        for wait in waits { #expect(await thrownError { try await wait.value } is CancellationError) }
    }

    @Test func `a task that writes and never waits lets its loop pass`() async throws {
        let queue = SendQueue(to: OutputStream(path: "/dev/null"))
        let thread = try RunLoopThread(name: "queue")
        let hasFired = Shared(false)
        thread.runLoop.performSynchronously {
            RunLoop.current.add(
                Timer(interval: .milliseconds(1)) { _ in hasFired.value = true }, forMode: .default)
        }
        try await Task(executorPreference: thread.executor) {
            while !hasFired.value { try await queue.write(record(0)) }
        }.value
        await thread.shutDown()
    }
}
