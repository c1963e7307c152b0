import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamMessagesTests {
    private static func messages(_ kind: FramingKind) -> [[UInt8]] {
        var generator = SeededGenerator(seed: 1)
        return (0..<3000).map { kind.message($0 % 200, &generator) }
    }

    private static let places: [(FramingKind, TaskPlace)] = FramingKind.allCases.flatMap { kind in
        TaskPlace.allCases.map { (kind, $0) }
    }

    @Test(arguments: places)
    func `a task gets the messages in order, and leaves those that it does not want`(
        kind: FramingKind, place: TaskPlace
    ) async throws {
        let messages = Self.messages(kind)
        let stream = try messages.flatMap { try kind.framer().frame(for: $0) }
        let received = try await place.run { _ in
            let fixture = try Fixture(.pipe, stream)
            var (received, count) = ([[UInt8]](), 1)
            while received.count < messages.count {
                let end = received.count + count
                for try await message in fixture.input.messages(kind.framer()) {
                    received.append(message)
                    if received.count == end { break }
                }
                count = count * 3 / 2 + 1
            }
            #expect(try await fixture.input.readChunk() == nil)
            return received
        }
        #expect(received == messages)
    }

    @Test func `a message that is cut short is an error, and its bytes stay`() async throws {
        let fixture = try Fixture(.pipe, [1, 7, 5, 1, 2])
        var messages = fixture.input.messages(.lengthPrefix(UInt8.self)).makeAsyncIterator()
        #expect(try await messages.next() == [7])
        let error = await thrownError { _ = try await messages.next() } as? IOError
        #expect(error?.reason == .ended(bytesReceived: 3, bytesRequested: 6))
        #expect(try await messages.next() == nil)
        #expect(try await fixture.input.read(exactly: 3) == [5, 1, 2])
    }

    @Test func `an invalid message comes after the messages before it`() async throws {
        let fixture = try Fixture(.pipe, [1, 7, 99, 1, 2])
        var messages = fixture.input.messages(.lengthPrefix(UInt8.self, limit: 10)).makeAsyncIterator()
        #expect(try await messages.next() == [7])
        let error = await thrownError { _ = try await messages.next() } as? Framer.InvalidMessage
        #expect(error?.offset == 2 && error?.reason == .tooLong(byteCount: 99, limit: 10))
        #expect(try await messages.next() == nil)
    }

    @Test func `a message has the time of the timeout to arrive whole`() async throws {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (peer, connection) = (client.connection, server.connection)
            try await peer.write([1, 7, 3, 1])
            var messages = connection.messages(.lengthPrefix(UInt8.self), timeout: .seconds(30))
                .makeAsyncIterator()
            #expect(try await messages.next() == [7])
            let start = time.now
            let error = await thrownError { _ = try await messages.next() } as? IOError
            #expect(error?.reason == .waitTimedOut && time.now == start + .seconds(30))
            try await peer.write([2, 3])
            #expect(try await connection.read(exactly: 4) == [3, 1, 2, 3])
        }
    }

    @Test func `two ends of a connection exchange messages`() async throws {
        let (number, other) = try socketPair()
        let client = Connection(descriptor: FileDescriptor(rawValue: number))
        let server = Connection(descriptor: FileDescriptor(rawValue: other))
        let framer = Framer.contentLength()
        try await client.write(framer.frame(for: Array("ping".utf8)))
        try await client.finish()
        for try await message in server.messages(framer) {
            try await server.write(framer.frame(for: message + message))
        }
        try await server.finish()
        var answers = client.messages(framer).makeAsyncIterator()
        #expect(try await answers.next() == Array("pingping".utf8))
        #expect(try await answers.next() == nil)
    }
}
