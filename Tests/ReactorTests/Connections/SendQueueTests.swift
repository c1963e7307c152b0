import Dispatch
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What a queue sends to, and what reads it.
struct Sink {
    let queue: SendQueue
    let connection: Connection?
    let peer: SocketPeer?
    private let pipe: TestPipe?
    private let folder: TemporaryFolder?

    enum Kind: CaseIterable { case connection, pipe, file }

    init(_ kind: Kind, limit: Int = 100_000, overflow: SendQueue.Overflow = .fail) async throws {
        switch kind {
        case .connection:
            let (peer, other) = try SocketPeer.pair()
            let connection = Connection(descriptor: other)
            try await connection.open()
            (self.connection, self.peer, pipe, folder) = (connection, peer, nil, nil)
            queue = SendQueue(to: connection, limit: limit, overflow: overflow)
        case .pipe:
            let pipe = try TestPipe()
            (connection, peer, self.pipe, folder) = (nil, nil, pipe, nil)
            let stream = OutputStream(descriptor: pipe.give(pipe.writeEnd), closeWhenDone: true)
            queue = SendQueue(to: stream, limit: limit, overflow: overflow)
        case .file:
            let folder = TemporaryFolder()
            (connection, peer, pipe, self.folder) = (nil, nil, nil, folder)
            let stream = OutputStream(path: FilePath("\(folder.path)/log"))
            queue = SendQueue(to: stream, limit: limit, overflow: overflow)
        }
    }

    /// The next `count` bytes that the peer receives.
    func receive(_ count: Int) async throws -> [UInt8] {
        if let peer { return peer.receive(count) }
        if let pipe {
            var bytes: [UInt8] = []
            var piece = [UInt8](repeating: 0, count: 65_536)
            while bytes.count < count {
                bytes += piece[..<(try piece.withUnsafeMutableBytes { try pipe.readEnd.read(into: $0) })]
            }
            return bytes
        }
        try await queue.flush()
        return content
    }

    /// What the peer receives up to the end.
    func receiveToEnd() async throws -> [UInt8]? {
        if let peer { return peer.receiveToEnd() }
        if let pipe { return try await InputStream(descriptor: pipe.readEnd).readToEnd(limit: 1 << 20) }
        return content
    }

    private var content: [UInt8] { ReactorTestSupport.content(of: "\(folder!.path)/log") ?? [] }
}

/// A record that shows whether it is whole: its number, in ten digits, as often as it says.
func record(_ number: Int, _ count: Int = 10) -> [UInt8] {
    let digits = String(number + 1_000_000_000)
    return Array((String(repeating: digits, count: count) + "\n").utf8)
}

/// The numbers of whole records; nil if one is not whole.
func numbers(_ bytes: [UInt8]) -> [Int]? {
    var numbers: [Int] = []
    for line in bytes.split(separator: 10, omittingEmptySubsequences: false).dropLast() {
        guard let number = Int(String(decoding: line.prefix(10), as: UTF8.self)).map({ $0 - 1_000_000_000 }),
            line.count % 10 == 0, record(number, line.count / 10).dropLast().elementsEqual(line)
        else { return nil }
        numbers.append(number)
    }
    return bytes.last == 10 || bytes.isEmpty ? numbers : nil
}

@Suite(.runLoop) struct SendQueueTests {
    @Test(arguments: Sink.Kind.allCases)
    func `messages of many threads arrive whole, and those of each in order`(kind: Sink.Kind)
        async throws
    {
        let sink = try await Sink(kind, limit: 20_000_000)
        let queue = sink.queue
        let senders = 4
        DispatchQueue.global().async {
            DispatchQueue.concurrentPerform(iterations: senders) { sender in
                for index in 0..<1000 { try? queue.send(record(index * senders + sender, 1 + index % 40)) }
            }
        }
        let total = senders * (0..<1000).reduce(0) { $0 + record(0, 1 + $1 % 40).count }
        var bytes = kind == .file ? [] : try await sink.receive(total)
        while bytes.count < total {
            await Task.yield()
            bytes = try await sink.receive(total)
        }
        let received = try #require(numbers(bytes))
        #expect(received.count == 4000 && queue.droppedCount == 0)
        for sender in 0..<senders {
            let own = received.filter { $0 % senders == sender }
            #expect(own == own.sorted())
        }
        try await queue.flush()
        #expect(queue.waitingByteCount == 0)
    }

    @Test(arguments: [Sink.Kind.connection, .pipe])
    func `a full queue refuses a message, and sends those that it has accepted`(kind: Sink.Kind)
        async throws
    {
        let sink = try await Sink(kind)
        var sent = 0
        let error =
            await thrownError {
                while true {
                    try sink.queue.send(record(sent))
                    sent += 1
                }
            } as? IOError
        #expect(error?.errno == .noBufferSpace)
        #expect(sink.queue.waitingByteCount <= 100_000)
        #expect(try await numbers(sink.receive(sent * record(0).count)) == Array(0..<sent))
        try await sink.queue.flush()
        try sink.queue.send(record(7))
        #expect(try await numbers(sink.receive(record(7).count)) == [7])
        let tooLong =
            await thrownError { try sink.queue.send([UInt8](repeating: 0, count: 100_001)) } as? IOError
        #expect(tooLong?.errno == .messageTooLong)
    }

    @Test(arguments: [Sink.Kind.connection, .pipe])
    func `a queue that drops the oldest keeps the newest, and counts`(kind: Sink.Kind)
        async throws
    {
        let sink = try await Sink(kind, overflow: .dropOldest)
        for number in 0..<20_000 { try sink.queue.send(record(number)) }
        let dropped = sink.queue.droppedCount
        #expect(dropped > 0 && sink.queue.waitingByteCount <= 100_000)
        let received = try #require(numbers(try await sink.receive((20_000 - dropped) * record(0).count)))
        #expect(received == received.sorted() && received.last == 19_999)
        #expect(received.count + dropped == 20_000)
    }

    @Test(arguments: [Sink.Kind.connection, .pipe])
    func `of messages with one key that wait, the latest is sent`(kind: Sink.Kind) async throws {
        let sink = try await Sink(kind, limit: 400_000)
        var fillers = 0
        while sink.queue.waitingByteCount < 350_000 {
            try sink.queue.send(record(0))
            fillers += 1
        }
        for number in 1...3000 {
            try sink.queue.send(record(number * 10 + number % 10), replacing: number % 10)
        }
        #expect(sink.queue.replacedCount == 2990)
        let received = try #require(numbers(try await sink.receive((fillers + 10) * record(0).count)))
        #expect(Set(received.suffix(10)) == Set((2991...3000).map { $0 * 10 + $0 % 10 }))
        #expect(received.prefix(fillers).allSatisfy { $0 == 0 })
    }

    @Test func `a write waits for room, and nothing of it is sent if it is cancelled or too late`()
        async throws
    {
        let sink = try await Sink(.connection)
        var sent = 0
        while (try? sink.queue.send(record(sent))) != nil { sent += 1 }
        let (queue, first) = (sink.queue, sent)
        let late =
            await thrownError { try await queue.write(record(0, 9500), timeout: .milliseconds(1)) }
            as? IOError
        #expect(late?.reason == .waitTimedOut)
        let cancelled = Task.immediate { try await queue.write(record(0, 9500)) }
        let waiting = Task { for number in first..<first + 2000 { try await queue.write(record(number)) } }
        await Task.yield()
        cancelled.cancel()
        #expect(await thrownError { try await cancelled.value } is CancellationError)
        let received = try await sink.receive((first + 2000) * record(0).count)
        #expect(numbers(received) == Array(0..<first + 2000))
        try await waiting.value
    }

    @Test func `a message is longer than the connection's write buffer, and other writes wait for its end`()
        async throws
    {
        let sink = try await Sink(.connection, limit: 2_000_000)
        let long = record(1, 150_000)
        try sink.queue.send(long)
        let connection = try #require(sink.connection)
        let other = Task.immediate { try await connection.write(record(2)) }
        let bytes = try await sink.receive(long.count + record(2).count)
        #expect(numbers(bytes) == [1, 2])
        try await other.value
    }

    @Test func `a message that is sent during a write of the connection comes after it`() async throws {
        let sink = try await Sink(.connection)
        let (connection, long) = (try #require(sink.connection), record(2, 150_000))
        try sink.queue.send(record(1))
        #expect(try await numbers(sink.receive(record(1).count)) == [1])
        let write = Task.immediate { try await connection.write(long) }
        try sink.queue.send(record(3))
        let bytes = try await sink.receive(long.count + record(3).count)
        #expect(numbers(bytes) == [2, 3])
        try await write.value
    }

    @Test func `what waits when the connection is closed is dropped, and calls throw its error`() async throws
    {
        let sink = try await Sink(.connection)
        var sent = 0
        while (try? sink.queue.send(record(sent))) != nil { sent += 1 }
        let (queue, next) = (sink.queue, sent)
        let flush = Task.immediate { try await queue.flush() }
        let write = Task.immediate { try await queue.write(record(next)) }
        sink.connection?.reset()
        #expect(await thrownError { try await flush.value } != nil)
        #expect(await thrownError { try await write.value } != nil)
        #expect(queue.droppedCount > 0)
        #expect(queue.waitingByteCount == 0)
        #expect(throws: IOError.self) { try queue.send(record(0)) }
    }

    @Test func `a queue of a connection that is not open refuses messages`() throws {
        let queue = SendQueue(to: Connection(toHost: "localhost", port: 9))
        let error = #expect(throws: IOError.self) { try queue.send("x") }
        #expect(error?.errno == .socketNotConnected)
    }

    @Test func `the first message opens a connection that was accepted`() async throws {
        let (peer, other) = try SocketPeer.pair()
        let queue = SendQueue(to: Connection(descriptor: other))
        try queue.send("first")
        #expect(peer.receive(5) == Array("first".utf8))
    }

    @Test func `a queue that nothing refers to sends what waits`() async throws {
        let (peer, other) = try SocketPeer.pair()
        var count = 0
        do {
            let connection = Connection(descriptor: other)
            try await connection.open()
            let queue = SendQueue(to: connection, limit: 300_000)
            while (try? queue.send(record(count))) != nil { count += 1 }
        }
        let bytes = try #require(peer.receiveToEnd())
        #expect(numbers(bytes) == Array(0..<count))
    }

    @Test func `the least limit has room for one message`() async throws {
        let sink = try await Sink(.connection, limit: 64)
        try sink.queue.send([UInt8](repeating: 1, count: 64))
        let tooLong = #expect(throws: IOError.self) { try sink.queue.send([UInt8](repeating: 1, count: 65)) }
        #expect(tooLong?.errno == .messageTooLong)
    }

    @Test(arguments: [true, false])
    func `a limit that has room for no message traps`(isStream: Bool) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [isStream] in
            _ =
                isStream
                ? SendQueue(to: OutputStream.toMemory(), limit: 63)
                : SendQueue(to: Connection(to: .ipv4Loopback(port: 9)), limit: 63)
        }
        #expect(result.message.contains("SendQueue.limit must be at least 64, not 63"))
    }

    // MARK: Room

    @Test func `a message whose key waits replaces it, and no more is dropped than it is longer`()
        async throws
    {
        let sink = try await Sink(.connection, overflow: .dropOldest)
        var count = 0
        while sink.queue.waitingByteCount + 1000 <= 100_000 {
            try sink.queue.send([UInt8](repeating: 0, count: 1000), replacing: count)
            count += 1
        }
        try sink.queue.send([UInt8](repeating: 1, count: 1000), replacing: count - 1)
        #expect(sink.queue.droppedCount == 0 && sink.queue.replacedCount == 1)
        try sink.queue.send([UInt8](repeating: 1, count: 1500), replacing: count - 1)
        #expect(sink.queue.droppedCount == 1 && sink.queue.replacedCount == 2)
    }

    @Test func `a message that cannot fit is dropped alone`() async throws {
        let sink = try await Sink(.connection, limit: 1_000_000, overflow: .dropOldest)
        try sink.queue.send([UInt8](repeating: 0, count: 900_000))
        for _ in 0..<50 { try sink.queue.send([UInt8](repeating: 1, count: 1000)) }
        let waiting = sink.queue.waitingByteCount
        try sink.queue.send([UInt8](repeating: 2, count: 200_000))
        #expect(sink.queue.droppedCount == 1 && sink.queue.waitingByteCount == waiting)
    }

    @Test func `keys of all types of integers are one if they are equal`() async throws {
        let sink = try await Sink(.connection, limit: 1_000_000)
        try sink.queue.send([UInt8](repeating: 0, count: 900_000))
        for number in 0..<100 { try sink.queue.send([1], replacing: number) }
        for number in 0..<100 { try sink.queue.send([2], replacing: UInt8(number)) }
        #expect(sink.queue.replacedCount == 100)
    }

    @Test func `messages without bytes need room, too`() async throws {
        let sink = try await Sink(.connection)
        while (try? sink.queue.send(record(0))) != nil {}
        let error =
            await thrownError { for _ in 0..<100 { try sink.queue.send([UInt8]()) } } as? IOError
        #expect(error?.errno == .noBufferSpace)
    }

    @Test(arguments: ["/dev/full", "/nonexistent/file"])
    func `the end of a file that cannot be written throws why`(path: String) async throws {
        let queue = SendQueue(to: OutputStream(path: FilePath(path)))
        try? queue.send("record")
        let error = await thrownError { try await queue.finish() }
        #expect(error?.errno == (path == "/dev/full" ? .noSpace : .noSuchFileOrDirectory))
    }

    @Test func `messages are refused as long as one task ends the output, though another gives up`()
        async throws
    {
        let (peer, other) = try SocketPeer.pair()
        let connection = Connection(descriptor: other)
        let queue = SendQueue(to: connection)
        let write = Task { try await connection.write(pattern(1 << 23)) }
        #expect(peer.receive(1) == Array(pattern(1)))
        let finish = Task { try await queue.finish() }
        await yieldUntil { (try? queue.send("early")) == nil }
        let late = await thrownError { try await queue.finish(timeout: .milliseconds(1)) }
        #expect(late?.errno == .timedOut)
        #expect(await thrownError { try queue.send("late") }?.errno == .brokenPipe)
        let reader = try JoinableThread { _ = peer.receiveToEnd() }
        try await write.value
        try await finish.value
        reader.join()
    }

    @Test func `a write gets the room that a long message has left which was dropped`() async throws {
        let (peer, other) = try SocketPeer.pair()
        let connection = Connection(descriptor: other, options: .init(writeBufferSize: 0))
        let queue = SendQueue(to: connection, limit: 4000, overflow: .dropOldest)
        let write = Task { try await connection.write(pattern(1 << 23)) }
        #expect(peer.receive(1) == Array(pattern(1)))
        // The first is on its way, as soon as the write has ended.
        for count in [64, 3800] { try queue.send([UInt8](repeating: 1, count: count)) }
        let waiting = Task.immediate { try await queue.write([UInt8](repeating: 2, count: 200)) }
        try queue.send([UInt8](repeating: 3, count: 200))
        try await waiting.value
        #expect(queue.droppedCount == 1)
        connection.reset()
        _ = try? await write.value
    }

    @Test func `a write gets the room that one before it has given up`() async throws {
        let sink = try await Sink(.connection, limit: 100_500)
        let queue = sink.queue
        while (try? queue.send([UInt8](repeating: 0, count: 1000))) != nil {}
        let first = Task.immediate { try await queue.write([UInt8](repeating: 1, count: 600)) }
        let second = Task.immediate { try await queue.write([UInt8](repeating: 2, count: 100)) }
        first.cancel()
        #expect(await thrownError { try await first.value } is CancellationError)
        try await second.value
    }
}
