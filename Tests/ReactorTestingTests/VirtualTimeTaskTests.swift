import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Tasks that wait on a loop with virtual time: on its thread, and in the concurrency pool, whose threads have the kernel's.
@Suite(.runLoop) struct VirtualTimeTaskTests {
    @Test func `a task's sleep on the loop's clock passes at once`() async throws {
        try await withVirtualTime { time in
            let start = time.now
            try await time.loop.clock().sleep(for: .seconds(3600))
            #expect(time.now == start + .seconds(3600))
            try await time.advance(by: .seconds(60))
            #expect(time.now == start + .seconds(3660))
        }
    }

    @Test @MainActor func `the main loop has virtual time, too`() async throws {
        try await withVirtualTime { time in
            let start = time.now
            try await RunLoop.main.clock().sleep(for: .seconds(3600))
            #expect(time.now == start + .seconds(3600))
        }
    }

    // MARK: In the pool

    private actor Sleeper {
        func sleep(for duration: Duration, on clock: RunLoop.Clock) async throws {
            try await clock.sleep(for: duration)
        }
    }

    /// Calls `body` in a task of the pool, and returns how much virtual time passes.
    @MainActor private func time(
        of body: @escaping @Sendable (RunLoop) async throws -> Void
    ) async throws -> Duration {
        try await withVirtualTime { time in
            let (loop, start) = (time.loop, time.now)
            // The threads of the pool are behind, as if earlier tests had moved the clock.
            time.skip(.seconds(3600))
            try await Task.detached { try await body(loop) }.value
            return start.duration(to: time.now) - .seconds(3600)
        }
    }

    @Test func `a detached task sleeps on the loop's clock in virtual time`() async throws {
        #expect(try await time { try await $0.clock().sleep(for: .seconds(5)) } == .seconds(5))
    }

    @Test func `the loop's clock has the loop's time for a task in the pool`() async throws {
        let passed = try await time { loop in
            let (clock, start) = (loop.clock(), loop.clock().now)
            try await clock.sleep(until: start + .seconds(5))
            #expect(clock.now == start + .seconds(5))
        }
        #expect(passed == .seconds(5))
    }

    @Test func `child tasks and actors in the pool sleep side by side`() async throws {
        let passed = try await time { loop in
            async let first: Void = loop.clock().sleep(for: .seconds(2))
            try await withThrowingTaskGroup { group in
                group.addTask { try await loop.clock().sleep(for: .seconds(7)) }
                group.addTask { try await Sleeper().sleep(for: .seconds(5), on: loop.clock()) }
                try await group.waitForAll()
            }
            try await first
        }
        #expect(passed == .seconds(7))
    }

    @Test @MainActor func `a deadline is kept for an operation of the main actor`() async {
        await withVirtualTime { time in
            let (start, clock) = (time.now, time.loop.clock())
            await #expect(throws: RunLoop.Clock.DeadlineError.self) {
                try await clock.withDeadline(start + .seconds(5)) {
                    try await clock.sleep(for: .seconds(60))
                }
            }
            #expect(time.now == start + .seconds(5))
        }
    }

    @Test func `a read of a task in the pool times out in virtual time`() async throws {
        let passed = try await time { loop in
            let pipe = try FileDescriptor.pipe()
            let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            input.schedule(in: loop, forMode: .default)
            await #expect(throws: IOError.self) { try await input.readChunk(upTo: 1, timeout: .seconds(5)) }
            input.close()
            try pipe.writeEnd.close()
        }
        #expect(passed == .seconds(5))
    }

    @Test func `a write waits for its turn and for room no longer than its timeout`() async throws {
        let passed = try await time { loop in
            let (peer, other) = try SocketPeer.pair()
            let (connection, executor) = (
                Connection(descriptor: other, options: .init(writeBufferSize: 0)), loop.executor()
            )
            @Sendable func fill(_ timeout: Duration) -> Task<Void, Never> {
                Task(executorPreference: executor) {
                    let error = await #expect(throws: IOError.self) {
                        while true { try await connection.write([1], timeout: timeout) }
                    }
                    #expect(error?.errno == .timedOut)
                }
            }
            await fill(.zero).value
            for task in [fill(.seconds(10)), fill(.seconds(15))] { await task.value }
            withExtendedLifetime(peer) {}
            connection.reset()
        }
        #expect(passed == .seconds(15))
    }

    @Test func `receiving and accepting in the pool time out in virtual time`() async throws {
        let passed = try await time { loop in
            let address = SocketAddress.ipv4Loopback(port: 0)
            let datagrams = try loop.datagrams(boundTo: address)
            await #expect(throws: IOError.self) { try await datagrams.receive(timeout: .seconds(5)) }
            datagrams.close()
            let connections = try loop.connections(at: address) { _ in }
            await #expect(throws: IOError.self) { try await connections.accept(timeout: .seconds(2)) }
            connections.close()
        }
        #expect(passed == .seconds(7))
    }
}
