import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// What a seed and its faults are found to be.
@Suite(.runLoop) struct SimulationSearchTests {
    @Test func `a failing seed is repeated with few faults`() {
        let comments = Seen<String>()
        var runCount = 0
        withKnownIssue {
            simulate(seeds: 10) { world in
                runCount += 1
                world.faults.failedLookups = 0.5
                let host = world.host("server.example")
                var failures = 0
                for _ in 0..<20 {
                    Resolver.resolve(host: host.name, port: 80) { if case .failure = $0 { failures += 1 } }
                }
                world.time.runUntilIdle()
                #expect(failures < 2)
            }
        } matching: { issue in
            comments.add(issue.comments.map(\.rawValue))
            return true
        }
        let variable = comments.values.first { $0.contains("REACTOR_SEED=0:") }
        #expect(variable?.ranges(of: "failedLookup-lookup-").count == 2)
        #expect(runCount < 100)
    }

    @Test func `a failure that needs no fault is reported with its seed alone`() {
        let comments = Seen<String>()
        withKnownIssue {
            simulate(seeds: 10) { world in
                world.link.latency = .milliseconds(1) ... .milliseconds(2)
                throw Errno.ioError
            }
        } matching: { issue in
            comments.add(issue.comments.map(\.rawValue))
            return true
        }
        #expect(comments.values.contains { $0.contains("REACTOR_SEED=0 ") })
    }

    @Test func `asynchronous simulations are tried until one fails`() async {
        let seeds = Seen<UInt64>()
        await withKnownIssue {
            await simulate(seeds: 10) { world in
                seeds.add([world.seed])
                world.faults.refusals = 0.2
                let connections = try world.time.loop.connections(at: .ipv4Any(port: 7000))
                defer { connections.close() }
                for _ in 0..<5 { try await Connection.connect(toHost: "localhost", port: 7000).close() }
            }
        } matching: { _ in
            true
        }
        #expect(seeds.values.count > 1)
    }

    /// Values in a box that closures on other threads may refer to.
    private final class Seen<Value: Sendable>: Sendable {
        private let content = Synchronization.Mutex<[Value]>([])
        var values: [Value] { content.withLock { $0 } }
        func add(_ values: [Value]) { content.withLock { $0 += values } }
    }
}
