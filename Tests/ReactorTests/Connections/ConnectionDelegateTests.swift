import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Records the events of a connection, and may answer them.
private final class EventLog: ConnectionDelegate {
    var events: [Stream.Event] = []
    var bytes: [UInt8] = []
    var respond: (Connection, Stream.Event) -> Void = { _, _ in }
    var takesBytes = true
    private(set) var error: (any Error)?
    private let canary: AnyObject?

    init(canary: AnyObject? = nil) { self.canary = canary }

    func connection(_ connection: Connection, handle connectionEvent: Connection.Event) {
        let event = connectionEvent.kind
        events.append(event)
        if case .errorOccurred(let error) = connectionEvent { self.error = error }
        if takesBytes, event == .hasBytesAvailable { bytes += connection.receive() }
        respond(connection, event)
    }

    /// The events in the order of their first.
    var kinds: [Stream.Event] { events.reduce(into: []) { if !$0.contains($1) { $0.append($1) } } }
}

extension Connection.Event {
    /// The stream's event that stands for it, which can be compared.
    fileprivate var kind: Stream.Event {
        switch self {
        case .openCompleted: .openCompleted
        case .hasBytesAvailable: .hasBytesAvailable
        case .hasSpaceAvailable: .hasSpaceAvailable
        case .endEncountered: .endEncountered
        case .errorOccurred: .errorOccurred
        @unknown default: []
        }
    }
}

@Suite(.runLoop) struct ConnectionDelegateTests {
    private let loop = RunLoop.current
    private let log = EventLog()

    /// A connection that has a delegate, and its peer.
    private func connect(_ options: Connection.Options = .init(), _ delegate: EventLog? = nil) throws
        -> (Connection, SocketPeer)
    {
        let (peer, other) = try SocketPeer.pair()
        let connection = Connection(descriptor: other, options: options)
        connection.open(delegate: delegate ?? log)
        return (connection, peer)
    }

    private func run(until condition: () -> Bool) {
        while !condition() { loop.run(in: .default, returnAfterSourceHandled: true) }
    }

    @Test func `the events of both directions are those of one connection`() throws {
        let (connection, peer) = try connect()
        peer.send([1, 2, 3])
        peer.shutDown()
        run { log.events.contains(.endEncountered) }
        let expected: [Stream.Event] = [
            .openCompleted, .hasSpaceAvailable, .hasBytesAvailable, .endEncountered,
        ]
        #expect(
            Set(log.kinds) == Set(expected) && log.kinds.first == .openCompleted
                && log.events.last == .endEncountered)
        #expect(log.events.count { $0 == .openCompleted } == 1)
        #expect(log.bytes == [1, 2, 3])
        try connection.send([4, 5])
        try? connection.sendEnd()
        #expect(peer.receiveToEnd() == [4, 5])
        #expect(connection.descriptor == nil)
    }

    @Test func `what is received is appended to a buffer, and a part of a buffer is sent`() throws {
        let (connection, peer) = try connect()
        log.takesBytes = false
        var buffer = Array("line ".utf8)
        #expect(connection.receive(into: &buffer) == 0)
        peer.send("abcdef")
        run { log.events.contains(.hasBytesAvailable) }
        #expect(connection.receive(into: &buffer, upTo: 0) == 0)
        #expect(connection.receive(into: &buffer, upTo: 4) == 4)
        #expect(connection.receive(into: &buffer) == 2)
        #expect(String(bytes: buffer) == "line abcdef")
        try connection.send(buffer.span.bytes.extracting(5..<8))
        peer.shutDown()
        run { log.events.count { $0 == .hasBytesAvailable } > 1 }
        #expect(connection.receive(into: &buffer) == 0 && buffer.count == 11)
        try? connection.sendEnd()
        #expect(peer.receiveToEnd() == Array("abc".utf8))
    }

    @Test func `a client's connection opens, sends and ends`() throws {
        let (server, client) = (EventLog(), log)
        server.respond = { [unowned server] connection, event in
            if event == .endEncountered {
                try? connection.send(server.bytes.reversed())
                try? connection.sendEnd()
            }
        }
        let listener = try addListener { _, connection in connection.open(delegate: server) }
        client.respond = { connection, event in
            guard event == .openCompleted else { return }
            #expect(connection.peerAddress == listener.localAddress && connection.localAddress != nil)
            try? connection.send("abc")
            try? connection.sendEnd()
        }
        Connection(to: listener.localAddress).open(delegate: client)
        run { client.events.contains(.endEncountered) }
        #expect(client.bytes == Array("cba".utf8))
        listener.close()
    }

    @Test
    func `a connection without another reference lives with its delegate until both directions have ended`()
        throws
    {
        var witness: Witness? = Witness()
        let (fate, answer) = (Fate(witness!), "answer")
        let peer = try {
            let delegate = EventLog(canary: witness)
            delegate.respond = { connection, event in
                guard event == .endEncountered else { return }
                Timer.scheduled(after: .zero) { _ in
                    try? connection.send(answer)
                    try? connection.sendEnd()
                }
            }
            return try connect(.init(), delegate).1
        }()
        witness = nil
        peer.send([1])
        for _ in 0..<10 { loop.poll() }
        #expect(fate.witness != nil)
        peer.shutDown()
        run { fate.witness == nil }
        #expect(peer.receiveToEnd() == Array(answer.utf8))
    }

    @Test(arguments: ["closed", "failed", "finished", "reset"])
    func `the delegate is released when the connection is`(ending: String) throws {
        var witness: Witness? = Witness()
        let fate = Fate(witness!)
        let (connection, peer) = try connect(.init(), EventLog(canary: witness))
        witness = nil
        loop.poll()
        switch ending {
        case "closed": connection.close()
        case "failed":
            // The peer leaves it unread, which is a reset.
            try connection.send("unread")
            peer.close()
        case "reset": connection.reset()
        default:
            try? connection.sendEnd()
            peer.shutDown()
        }
        run { fate.witness == nil }
        #expect(connection.descriptor == nil)
    }

    @Test func `a delegate and its connection may refer to each other`() throws {
        var witness: Witness? = Witness()
        let fate = Fate(witness!)
        do {
            let delegate = EventLog(canary: witness)
            witness = nil
            let (connection, _) = try connect(.init(), delegate)
            delegate.respond = { [connection] _, event in if event == .endEncountered { connection.close() } }
        }
        run { fate.witness == nil }
    }

    @Test func `the end of the loop's thread closes the connection and releases the delegate there`() throws {
        let (peer, other) = try SocketPeer.pair()
        let releasedOn = Answer<pthread_t>()
        let thread = try RunLoopThread(name: "home")
        let own = Answer<pthread_t>()
        thread.runLoop.perform {
            own.give(pthread_self())
            let canary = AtEnd { releasedOn.give(pthread_self()) }
            Connection(descriptor: other).open(delegate: EventLog(canary: canary))
        }
        let expected = own.wait()
        thread.stop()
        #expect(releasedOn.wait() == expected)
        #expect(peer.receiveToEnd() == [])
    }

    @Test func `bytes that arrived before a fault come before it, and the connection is closed after it`()
        throws
    {
        let (connection, peer) = try connect(.init(writeBufferSize: 1 << 20))
        log.respond = { connection, event in
            if event == .errorOccurred {
                #expect(connection.state == .failed)
            }
        }
        loop.poll()
        peer.send([7, 8])
        peer.close()
        // The peer has unread bytes: a reset follows.
        try? connection.send([UInt8](repeating: 0, count: 300_000))
        run { log.events.contains(.errorOccurred) || log.events.contains(.endEncountered) }
        #expect(log.bytes == [7, 8])
        connection.close()
        #expect(connection.descriptor == nil)
    }

    @Test func `an event that is pending when the connection is closed is not delivered`() throws {
        let (connection, peer) = try connect()
        loop.poll()
        peer.send([1])
        let before = log.events
        connection.close()
        loop.poll()
        #expect(log.events == before)
    }

    // MARK: Sending

    @Test func `what is sent is accepted whole or not at all, and an event tells of room`() throws {
        let (connection, peer) = try connect(.init(writeBufferSize: 10_000))
        peer.narrow()
        run { log.events.contains(.openCompleted) }
        #expect(connection.writableCount == 10_000)
        #expect(throws: IOError.self) { try connection.send([UInt8](repeating: 1, count: 10_001)) }
        run { log.events.contains(.hasSpaceAvailable) }
        log.events = []
        #expect(throws: IOError.self) { try connection.send([UInt8](repeating: 1, count: 10_001)) }
        for _ in 0..<10 { loop.poll() }
        #expect(log.events.isEmpty)
        var sent = 0
        while true {
            do { try connection.send([UInt8](repeating: 2, count: 6000)) } catch let error as IOError {
                #expect(error.errno == .noBufferSpace)
                break
            }
            sent += 6000
        }
        #expect((0..<10_000).contains(connection.writableCount))
        log.events = []
        let (received, total) = (Shared(0), sent)
        let reader = try JoinableThread {
            while received.value < total, let bytes = peer.receive(upTo: 65_536), !bytes.isEmpty {
                received.update { $0 += bytes.count }
            }
        }
        run { log.events.contains(.hasSpaceAvailable) }
        reader.join()
        #expect(received.value == total)
        try connection.send([])
    }

    @Test func `a refused message is followed by an event for space, though some was offered`() throws {
        let (connection, peer) = try connect(.init(writeBufferSize: 100_000))
        peer.narrow()
        run { log.events.contains(.openCompleted) }
        for _ in 0..<2 {
            while connection.writableCount == 100_000 {
                try connection.send([UInt8](repeating: 1, count: 10_000))
            }
            for _ in 0..<10 { loop.poll() }
            #expect(log.events.last == .hasSpaceAvailable)
            log.events = []
            #expect(throws: IOError.self) { try connection.send([UInt8](repeating: 1, count: 100_000)) }
            for _ in 0..<10 { loop.poll() }
            #expect(log.events.isEmpty)
            while connection.writableCount < 100_000 {
                _ = peer.receive(upTo: 65_536)
                loop.poll()
            }
            run { log.events.contains(.hasSpaceAvailable) }
        }
    }

    @Test func `what was sent arrives though the connection is closed at once`() throws {
        let (connection, peer) = try connect(.init(writeBufferSize: 1 << 20))
        run { log.events.contains(.openCompleted) }
        let bytes = (0..<700_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        try connection.send(bytes)
        connection.close()
        #expect(peer.receiveToEnd() == bytes)
    }

    @Test func `nothing is sent before the connection is open, nor after it was closed`() throws {
        let connection = Connection(to: .ipv4Loopback(port: 9))
        #expect(throws: IOError.self) { try connection.send("early") }
        let (closed, _) = try connect()
        closed.close()
        #expect(throws: IOError.self) { try closed.send("late") }
        #expect(closed.receive() == [] && closed.writableCount == 0)
    }

    @Test func `bytes that a callback has received in a nested run are not announced after it`() throws {
        let (connection, peer) = try connect()
        log.takesBytes = false
        var received: [UInt8] = []
        log.respond = { [loop, unowned log] connection, event in
            guard event == .hasSpaceAvailable, received.isEmpty else { return }
            peer.send("hello")
            for _ in 0..<10 { loop.poll() }
            received = connection.receive()
            log.events = []
        }
        run { !received.isEmpty }
        for _ in 0..<10 { loop.poll() }
        #expect(received == Array("hello".utf8) && log.events.isEmpty)
        peer.send("more")
        run { log.events.contains(.hasBytesAvailable) }
        connection.close()
    }

    @Test(arguments: [true, false])
    func `room that a callback has used in a nested run is not announced after it`(ends: Bool) throws {
        let (connection, peer) = try connect()
        var isUsed = false
        log.respond = { [loop, unowned log] connection, event in
            guard event == .hasBytesAvailable, !isUsed else { return }
            try? connection.send("x")
            for _ in 0..<10 { loop.poll() }
            if ends { try? connection.sendEnd() }
            while connection.writableCount > 0 {
                guard (try? connection.send([UInt8](repeating: 1, count: connection.writableCount))) != nil
                else {
                    break
                }
            }
            isUsed = true
            log.events = []
        }
        run { log.events.contains(.hasSpaceAvailable) }
        peer.send([1])
        run { isUsed }
        for _ in 0..<10 { loop.poll() }
        #expect(log.events.isEmpty)
        _ = peer.receive(1)
        connection.close()
    }

    @Test func `a delegate that runs the loop is not called again meanwhile`() throws {
        let (connection, peer) = try connect()
        var (depth, hasAnswered) = (0, false)
        log.respond = { [loop] connection, event in
            depth += 1
            #expect(depth == 1)
            if event == .hasBytesAvailable, !hasAnswered {
                hasAnswered = true
                try? connection.send("answer")
                peer.shutDown()
                for _ in 0..<10 { loop.poll() }
            }
            depth -= 1
        }
        peer.send([1])
        run { log.events.contains(.endEncountered) }
        connection.close()
        #expect(peer.receiveToEnd() == Array("answer".utf8))
    }

    @Test func `a failure that both directions find in nested runs is told once, as the last event`() throws {
        let (connection, peer) = try connect(.init(writeTimeout: .milliseconds(50), writeBufferSize: 1 << 20))
        log.takesBytes = false
        log.respond = { [loop, unowned log] connection, event in
            guard event == .hasBytesAvailable, log.events.count(where: { $0 == event }) > 1 else { return }
            while !connection.receive().isEmpty {}
            for _ in 0..<10 { loop.poll() }
        }
        peer.send([1])
        run { log.events.contains(.hasBytesAvailable) }
        // The peer reads nothing.
        try connection.send([UInt8](repeating: 0, count: 1 << 20))
        run { log.events.contains(.errorOccurred) }
        for _ in 0..<10 { loop.poll() }
        #expect(log.events.count(where: { $0 == .errorOccurred }) == 1 && log.events.last == .errorOccurred)
    }

    @Test func `a connection that is not read fails when sending does, after its bytes`() throws {
        let (connection, peer) = try connect(.init(writeTimeout: .milliseconds(50), writeBufferSize: 1 << 20))
        var bytes: [UInt8] = []
        log.takesBytes = false
        log.respond = { [unowned log] connection, event in
            guard event == .hasBytesAvailable, log.events.count(where: { $0 == .hasBytesAvailable }) > 1
            else {
                return
            }
            bytes += connection.receive(upTo: 2)
        }
        peer.send([1, 2, 3])
        run { log.events.contains(.hasBytesAvailable) }
        // The peer reads nothing.
        try connection.send([UInt8](repeating: 0, count: 1 << 20))
        run { log.events.contains(.errorOccurred) }
        #expect(bytes == [1, 2, 3] && connection.descriptor == nil)
        #expect((connection.error as? IOError)?.operation == "write")
    }

    @Test func `messages that threads send at once are whole`() throws {
        let (connection, peer) = try connect(.init(writeBufferSize: 1 << 22))
        run { log.events.contains(.openCompleted) }
        let threads = try (0..<4).map { number in
            try JoinableThread {
                for _ in 0..<100 { try! connection.send([UInt8](repeating: UInt8(number), count: 1000)) }
            }
        }
        for thread in threads { thread.join() }
        try? connection.sendEnd()
        peer.shutDown()
        let bytes = try #require(peer.receiveToEnd())
        #expect(bytes.count == 400_000)
        for start in stride(from: 0, to: bytes.count, by: 1000) {
            #expect(Set(bytes[start..<start + 1000]).count == 1)
        }
        connection.close()
    }

    @Test func `a reset reaches the peer instead of an end`() throws {
        let (listener, accepted) = (try SocketPeer(listeningAt: .ipv4Loopback(port: 0)), EventLog())
        let connection = Connection(to: try listener.localAddress)
        connection.open(delegate: accepted)
        run { accepted.events.contains(.openCompleted) }
        let peer = try listener.accept()
        connection.reset()
        #expect(peer.receive(upTo: 1) == nil && errno == ECONNRESET)
    }

    @Test(
        arguments: [
            "open twice", "negative descriptor", "negative buffer", "no time to connect",
            "buffer set negative",
            "connect timeout set to zero", "idle timeout set to zero", "write timeout set negative",
        ])
    func `misuse traps with a sentence`(kind: String) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [kind] in
            try onAThread {
                var options = Connection.Options()
                switch kind {
                case "open twice":
                    // One that does not fail meanwhile.
                    let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
                    let connection = Connection(to: try listener.localAddress)
                    connection.open(delegate: EventLog())
                    connection.open(delegate: EventLog())
                case "negative descriptor": _ = Connection(descriptor: FileDescriptor(rawValue: -1))
                case "negative buffer": _ = Connection.Options(writeBufferSize: -1)
                case "no time to connect": _ = Connection.Options(connectTimeout: .zero)
                case "buffer set negative": options.writeBufferSize = -1
                case "connect timeout set to zero": options.connectTimeout = .zero
                case "idle timeout set to zero": options.idleTimeout = .zero
                default: options.writeTimeout = .seconds(-1)
                }
            }
        }
        #expect(!result.message.isEmpty)
    }
}
