import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Jumps of the clock while tasks wait: they wait for no time, and for everything that a task does elsewhere. In series, as
/// what other tests do there would hold the clock, too.
@Suite(.runLoop, .serialized) struct VirtualTimeJumpTests {
    /// A client that connects again with a back-off, and sends a line every fifteen seconds.
    private actor Client {
        private let executor: RunLoop.Executor
        private let clock: RunLoop.Clock
        private var backoff = Backoff(limit: .seconds(30))
        private(set) var attemptCount = 0
        /// How much real time each wait has taken.
        private(set) var waits: [Duration] = []
        nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

        init(on loop: RunLoop) { (executor, clock) = (loop.executor(), loop.clock()) }

        func run(connect: @Sendable () throws -> Connection) async throws {
            while true {
                attemptCount += 1
                do { try await keepAlive(try connect()) } catch is ConnectionRefused {}
                try await sleep(for: backoff.nextDelay())
            }
        }

        private func keepAlive(_ connection: Connection) async throws {
            defer { connection.close() }
            var answers = connection.lines(timeout: .seconds(20)).makeAsyncIterator()
            while true {
                try await sleep(for: .seconds(15))
                try await connection.write("ping\n")
                guard try await answers.next() != nil else { return }
            }
        }

        private func sleep(for duration: Duration) async throws {
            let start = ContinuousClock.now
            try await clock.sleep(for: duration)
            waits.append(start.duration(to: .now))
        }
    }

    private struct ConnectionRefused: Error {}

    /// Answers each line, and returns how many have come.
    private nonisolated(nonsending) static func answer(_ connection: Connection) async throws -> Int {
        var count = 0
        for try await _ in connection.lines() {
            count += 1
            try await connection.write("pong\n")
        }
        return count
    }

    /// Expects that jumps do not wait for the 20 ms that a peer has. A busy machine may delay all but the quickest.
    private static func expectQuick(_ jumps: [Duration]) throws {
        #expect(try #require(jumps.min()) < .milliseconds(10))
    }

    @Test func `an hour of keep-alives takes a moment`() async throws {
        try await withVirtualTime { time in
            let (end, server) = try TestConnection.pair()
            let (connection, other) = (end.connection, server.connection)
            let client = Client(on: time.loop)
            async let count = Self.answer(other)
            async let _ = client.run { connection }
            try await time.advance(by: .seconds(3601))
            connection.close()
            #expect(try await count == 240)
            try Self.expectQuick(await client.waits)
        }
    }

    @Test func `hours of attempts to connect take a moment`() async throws {
        try await withVirtualTime { time in
            let client = Client(on: time.loop)
            async let _ = client.run { throw ConnectionRefused() }
            try await time.advance(by: .seconds(3600))
            #expect((120...480).contains(await client.attemptCount))
            try Self.expectQuick(await client.waits)
        }
    }

    @Test func `a task in the pool sleeps for hours in a moment`() async throws {
        try await withVirtualTime { time in
            let clock = time.loop.clock()
            let waits = try await Task.detached {
                var waits: [Duration] = []
                for _ in 0..<100 {
                    let start = ContinuousClock.now
                    try await clock.sleep(for: .seconds(60))
                    waits.append(start.duration(to: .now))
                }
                return waits
            }.value
            try Self.expectQuick(waits)
        }
    }

    // MARK: Work of tasks elsewhere

    private actor Computer {
        func compute() { VirtualTimeJumpTests.compute() }
        func rest() {}
    }

    /// Keeps the thread busy for 5 ms.
    private static func compute() {
        let end = ContinuousClock.now + .milliseconds(5)
        while ContinuousClock.now < end {}
    }

    /// Expects that the clock does not move while `body` runs, though a date is near.
    private nonisolated(nonsending) func expectStandstill(
        _ time: VirtualTime, while body: () async -> Void
    ) async {
        let timer = Timer.scheduled(every: .milliseconds(1)) { _ in }
        for _ in 0..<Depth.of(full: 100, quick: 5) {
            let start = time.now
            await body()
            #expect(time.now == start)
        }
        timer.invalidate()
    }

    @Test func `the clock does not overtake a detached task`() async {
        await withVirtualTime { time in
            await expectStandstill(time) { await Task.detached { Self.compute() }.value }
        }
    }

    @Test func `the clock does not overtake a default actor`() async {
        await withVirtualTime { time in
            await expectStandstill(time) { await Computer().compute() }
            await expectStandstill(time) { await Task.detached { await Computer().compute() }.value }
        }
    }

    @Test func `the clock does not overtake a child task of the main actor`() async {
        await withVirtualTime { time in
            await expectStandstill(time) {
                await Task { @MainActor in
                    async let result: Void = Self.compute()
                    await result
                }.value
            }
        }
    }

    @Test @MainActor func `the clock of the main loop does not overtake a task of the test's thread`() async {
        await withVirtualTime { time in
            await expectStandstill(time) {
                async let result: Void = Self.compute()
                await result
            }
        }
    }

    @Test func `the clock does not overtake a dispatch queue`() async {
        await withVirtualTime { time in
            await expectStandstill(time) {
                await withCheckedContinuation { continuation in
                    DispatchQueue.global().async {
                        Self.compute()
                        continuation.resume()
                    }
                }
            }
        }
    }

    @Test func `the clock does not overtake a task that waits for a thread of the pool`() async {
        await withVirtualTime { time in
            let timer = Timer.scheduled(every: .milliseconds(1)) { _ in }
            let start = time.now
            for _ in 0..<2 * sysconf(CInt(_SC_NPROCESSORS_ONLN)) { Task.detached { usleep(20_000) } }
            await Task.detached {}.value
            #expect(time.now == start)
            timer.invalidate()
        }
    }

    @Test func `the clock does not overtake a task that takes many steps`() async {
        await withVirtualTime { time in
            let computer = Computer()
            await expectStandstill(time) {
                await Task.detached {
                    await Task.yield()
                    await computer.compute()
                    for _ in 0..<4 {
                        await withCheckedContinuation { continuation in
                            DispatchQueue.global().async { continuation.resume() }
                        }
                        await Task.detached { await computer.rest() }.value
                    }
                }.value
            }
        }
    }
}
