import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What is left when a simulation ends, and what must not be done with it.
@Suite(.runLoop) struct SimulationEndTests {
    /// What happens to ten clients that are closed at the end, and not served afterwards.
    private func run(clientCount: Int) -> [String] {
        withSimulation { world in
            world.link.latency = .milliseconds(1) ... .milliseconds(9)
            let listener = try? listen(.ipv4Any(port: 7000))
            let clients = (0..<clientCount).map { number in
                Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "client \(number)")
            }
            world.time.advance(by: .seconds(1))
            for client in clients { client.connection.close() }
            listener?.close()
            return world.trace
        }
    }

    @Test func `a simulation does not depend on what the one before has left to the loop`() {
        let first = run(clientCount: 10)
        #expect(first == run(clientCount: 10))
        _ = run(clientCount: 60)
        #expect(first == run(clientCount: 10))
    }

    @Test func `a connection that the test leaves open ends with the simulation`() throws {
        var served: Caller?
        let client = try withSimulation { world in
            world.faults.resets = 1
            let listener = try listen(.ipv4Any(port: 7000)) { served = Caller($1) }
            let client = Caller(Connection(to: .ipv4Loopback(port: 7000)))
            world.time.runUntilIdle()
            listener.close()
            return client
        }
        #expect(client.hasEnded && client.error == nil && served?.hasEnded == true)
        client.connection.close()
        served?.connection.close()
    }

    @Test func `a connection that is reset before a server accepts it keeps no descriptors`() async {
        await #expect(processExitsWith: .success) {
            @Sendable func resetOne() throws {
                try withSimulation { world in
                    world.faults.resets = 1
                    let listener = try Listener(
                        .ipv4Any(port: 7000), handler: { _, _ in }, acceptErrors: { _, _ in })
                    let client = Caller(Connection(to: .ipv4Loopback(port: 7000)), sending: "x")
                    world.time.runUntilIdle()
                    #expect(client.error == .connectionReset)
                    listener.close()
                }
            }
            try onAThread {
                try resetOne()
                let count = openDescriptorCount()
                for _ in 0..<10 { try resetOne() }
                #expect(openDescriptorCount() <= count + 1)
            }
        }
    }

    @Test func `clients that a full backlog keeps waiting leave no descriptors`() async {
        await #expect(processExitsWith: .success) {
            @Sendable func refuseSome() throws {
                try withSimulation { world in
                    var options = Listener.Options()
                    options.backlog = 1
                    let listener = try Listener(
                        .ipv4Any(port: 7000), options: options, handler: { _, _ in },
                        acceptErrors: { _, _ in })
                    let clients = (0..<8).map { _ in Caller(Connection(to: .ipv4Loopback(port: 7000))) }
                    world.time.advance(by: .seconds(300))
                    #expect(clients.contains { $0.error == .timedOut })
                    for client in clients { client.connection.close() }
                    listener.close()
                }
            }
            try onAThread {
                try refuseSome()
                let count = openDescriptorCount()
                for _ in 0..<5 { try refuseSome() }
                #expect(openDescriptorCount() <= count + 1)
            }
        }
    }

    // MARK: Misuse

    enum Misuse: String, CaseIterable, Codable, Sendable {
        case nested, notANumber, tooLikely, negativeLoss, negativeLatency, emptyChunks
        case worldAfterEnd, hostAfterEnd, timeAfterEnd, hostOfAnotherWorld, linkOfAnotherWorld, addressTwice
        case hostElsewhere, traceElsewhere, loopbackAddress, wildcardAddress, linkToItself

        func commit() throws {
            switch self {
            case .nested: withSimulation { _ in withSimulation { _ in } }
            case .notANumber: withSimulation { $0.faults.resets = .nan }
            case .tooLikely: withSimulation { $0.faults = World.Faults(all: 1.01) }
            case .negativeLoss: withSimulation { $0.link.loss = -0.1 }
            case .negativeLatency:
                withSimulation { $0.link.latency = .milliseconds(-1) ... .zero }
            case .emptyChunks: withSimulation { $0.link.chunkSizes = 0...1 }
            case .worldAfterEnd: withSimulation { $0 }.heal()
            case .hostAfterEnd: _ = withSimulation { $0 }.host("late")
            case .timeAfterEnd: withSimulation { $0.time }.advance(by: .zero)
            case .hostOfAnotherWorld:
                let host = withSimulation { $0.host("old") }
                withSimulation { world in
                    _ = world.host("new")
                    host.run { _ = try? listen(.ipv4Any(port: 7000)) }
                }
            case .linkOfAnotherWorld:
                let host = withSimulation { $0.host("old") }
                withSimulation { $0.partition($0.localhost, host) }
            case .hostElsewhere: try withSimulation { world in try onAThread { _ = world.host("late") } }
            case .traceElsewhere: try withSimulation { world in try onAThread { _ = world.trace } }
            case .loopbackAddress: _ = withSimulation { $0.host("db", "127.0.0.1") }
            case .wildcardAddress: _ = withSimulation { $0.host("db", "::") }
            case .linkToItself:
                withSimulation { world in
                    let host = world.host("db")
                    world.setLink(World.Link(), between: host, and: host)
                }
            case .addressTwice: _ = withSimulation { $0.host("twice", "10.0.0.1", "::ffff:10.0.0.1") }
            }
        }

        /// A part of the message.
        var words: String {
            switch self {
            case .nested: "withSimulation: this thread has virtual time already"
            case .notANumber, .tooLikely, .negativeLoss: "from zero to one"
            case .negativeLatency: "negative latency"
            case .emptyChunks: "must be positive"
            case .worldAfterEnd, .hostAfterEnd: "after its simulation has ended"
            case .timeAfterEnd: "withSimulation has returned"
            case .hostOfAnotherWorld, .linkOfAnotherWorld: "The host old belongs to another World"
            case .addressTwice: "given twice"
            case .loopbackAddress, .wildcardAddress: "is a loopback or wildcard address"
            case .linkToItself: "db reaches itself"
            case .hostElsewhere, .traceElsewhere: "on the thread that called withSimulation"
            }
        }
    }

    @Test(arguments: Misuse.allCases)
    func `misuse traps with a message`(misuse: Misuse) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [misuse] in
            try onAThread { try misuse.commit() }
        }
        #expect(result.message.contains(misuse.words), "\(result.message)")
    }
    enum Nesting: CaseIterable, Codable {
        case asyncLet, group, unstructured, inVirtualTime, ofVirtualTime

        func commit() async {
            switch self {
            case .asyncLet:
                await withSimulation { _ async in
                    async let inner: Void = withSimulation { _ async in }
                    await inner
                }
            case .group:
                await withSimulation { _ in
                    await withTaskGroup { $0.addTask { await withSimulation { _ async in } } }
                }
            case .unstructured:
                await withSimulation { _ in await Task { await withSimulation { _ async in } }.value }
            case .inVirtualTime:
                await withVirtualTime { _ async in
                    async let inner: Void = withSimulation { _ async in }
                    await inner
                }
            case .ofVirtualTime:
                await withSimulation { _ async in
                    async let inner: Void = withVirtualTime { _ async in }
                    await inner
                }
            }
        }
    }

    @Test(arguments: Nesting.allCases)
    func `a task of a test with virtual time cannot begin another`(nesting: Nesting) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [nesting] in
            let thread = try RunLoopThread(name: "test")
            await withTaskExecutorPreference(thread.runLoop.executor()) { await nesting.commit() }
        }
        #expect(result.message.contains(Misuse.nested.words), "\(result.message)")
    }
}
