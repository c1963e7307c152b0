import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Reading up to the end, and waiting for the first byte.
@Suite(.runLoop) struct StreamWholeTests {
    @Test(arguments: TaskPlace.allCases, StreamKind.finite.filter(\.isInput))
    func `a stream is read to its end, unless there are more bytes than the limit`(
        place: TaskPlace, kind: StreamKind
    ) async throws {
        try await place.run { _ in
            let bytes = (0..<200_000).map { UInt8(truncatingIfNeeded: $0) }
            let fixture = try Fixture(kind, bytes)
            defer { withExtendedLifetime(fixture) {} }
            let input = fixture.input
            #expect(try await input.waitForBytes())
            #expect(try await input.read(exactly: 2) == [0, 1])
            let error = await thrownError { _ = try await input.readToEnd(limit: 199_997) } as? IOError
            #expect(error?.errno == .messageTooLong)
            #expect(try await input.readToEnd(limit: 199_998) == Array(bytes[2...]))
            #expect(try await input.readToEnd(limit: 0) == [])
            #expect(try await !input.waitForBytes())
        }
    }

    @Test func `waiting for the bytes of a closed stream fails`() async throws {
        let pipe = try TestPipe("x")
        let input = pipe.makeInput()
        input.open()
        #expect(try await input.waitForBytes())
        #expect(try await input.waitForBytes())
        input.close()
        let error = await thrownError { _ = try await input.waitForBytes() }
        #expect((error as? IOError)?.errno == .badFileDescriptor)
    }

    @Test func `the first byte and the rest of a message have timeouts of their own`() async throws {
        try await withVirtualTime { time in
            let (client, server) = try TestConnection.pair()
            let (connection, clock, start) = (server.connection, time.loop.clock(), time.now)
            let peer = client.connection
            async let sent: Void = {
                try await clock.sleep(for: .seconds(50))
                try await peer.write("he")
            }()
            #expect(try await connection.waitForBytes(timeout: .seconds(60)))
            #expect(time.now == start + .seconds(50))
            let head =
                await thrownError { _ = try await connection.read(until: [10], timeout: .seconds(5)) }
                as? IOError
            #expect(head?.reason == .waitTimedOut && time.now == start + .seconds(55))
            #expect(try await connection.waitForBytes(timeout: .zero))
            #expect(try await connection.read(exactly: 2) == Array("he".utf8))
            let idle =
                await thrownError { _ = try await connection.waitForBytes(timeout: .seconds(60)) }
                as? IOError
            #expect(idle?.reason == .waitTimedOut && time.now == start + .seconds(115))
            try await sent
        }
    }
}
