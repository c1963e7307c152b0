#if DEBUG

import Testing

@testable import Reactor

@Suite struct TimeoutTimerTests {
    @Test func `closing both halves invalidates the timer of their timeouts`() async throws {
        try await onItsOwnThread {
            let fixture = try SocketFixture(.descriptor)
            let (input, output) = (try #require(fixture.input), try #require(fixture.output))
            input.idleTimeout = .seconds(60)
            for stream in [input, output] { stream.open() }
            let connection = (input.engine.backend as? SocketInput)?.connection
            let timer = try #require(connection?.timeouts?.timing.withLock { $0.timer })
            #expect(timer.isValid)
            for stream in [input, output] { stream.close() }
            #expect(!timer.isValid)
        }
    }
}

#endif
