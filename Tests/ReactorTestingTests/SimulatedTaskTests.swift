import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop(timeLimit: .seconds(600))) struct SimulatedTaskTests {
    @Test func `tasks serve and connect`() async throws {
        try await withSimulation { world in
            let connections = try world.time.loop.connections(at: .ipv4Any(port: 7000))
            async let serving: Void = connections.run { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
            let connection = try await Connection.connect(toHost: "localhost", port: 7000)
            try await connection.write("hello\n")
            #expect(try await connection.read(exactly: 6) == Array("hello\n".utf8))
            connection.close()
            connections.close()
            try await serving
        }
    }

    /// Four clients ask a server twenty questions each, and connect again after a failure.
    private func ask(in world: World) async throws -> Int {
        world.link.latency = .milliseconds(1) ... .milliseconds(20)
        world.link.chunkSizes = 1...9
        world.faults.resets = 0.02
        let server = world.host("server")
        let connections = try server.run { try world.time.loop.connections(at: .ipv4Any(port: 7000)) }
        async let serving: Void = connections.run { connection in
            for try await line in connection.lines() { try await connection.write("re: \(line)\n") }
        }
        let count = try await withThrowingTaskGroup(of: Int.self) { group in
            for number in 0..<4 {
                let host = world.host("client \(number)")
                group.addTask { try await host.run { try await questions(on: world.time.loop) } }
            }
            return try await group.reduce(0, +)
        }
        connections.close()
        try await serving
        return count
    }

    private func questions(on loop: RunLoop) async throws -> Int {
        var count = 0
        while count < 20 {
            do {
                let connection = try await Connection.connect(toHost: "server", port: 7000)
                defer { connection.close() }
                try await connection.write("question \(count)\n")
                for try await line in connection.lines() {
                    #expect(line == "re: question \(count)")
                    count += 1
                    if count == 20 { break }
                    try await connection.write("question \(count)\n")
                }
            } catch is IOError {
                try await loop.clock().sleep(for: .milliseconds(100))
            }
        }
        return count
    }

    @Test func `tasks get their answers, whatever happens to the connections`() async {
        await simulate(seeds: Depth.of(full: 1000, quick: 20)) { world in
            let count = try await ask(in: world)
            #expect(count == 80)
        }
    }

    @Test func `detached tasks and actors run on the simulation's thread`() async {
        actor Counter {
            var count = 0
            func increment() -> Int {
                count += 1
                return count
            }
        }
        await withSimulation { world in
            let (counter, loop, start) = (Counter(), world.time.loop, world.time.now)
            let tasks = (1...3).map { number in
                Task.detached {
                    try? await loop.clock().sleep(for: .seconds(number))
                    #expect(await counter.increment() == number && loop.isCurrent)
                    return Deadline.now
                }
            }
            for (number, task) in tasks.enumerated() {
                #expect(await start.duration(to: task.value) == .seconds(number + 1))
            }
        }
    }

    @Test func `tasks do the same for the same seed`() async throws {
        for seed in 0..<UInt64(3) {
            var traces: [[String]] = []
            for _ in 0..<2 {
                traces.append(
                    try await withSimulation(seed: seed) { world in
                        _ = try await ask(in: world)
                        return world.trace
                    })
            }
            #expect(traces[0] == traces[1] && traces[0].count > 100)
        }
    }
}
