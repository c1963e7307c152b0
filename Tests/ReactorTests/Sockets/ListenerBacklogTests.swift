import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Pending connections: many of them, lost ones, and those at the end of a server.
@Suite(.runLoop) struct ListenerBacklogTests {
    @Test(arguments: [false, true])
    func `draining accepts all pending connections and then closes`(isInLoop: Bool) throws {
        let count = 3 * connectionsPerPass
        let freed = Shared(false)
        var (calls, callsAfter) = (0, 0)
        let listener = try addListener(canary: AtEnd { freed.value = true }) { _, _ in calls += 1 }
        if !isInLoop { RunLoop.current.remove(listener, forMode: .default) }
        let clients = try (0..<count).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        listener.drain()
        callsAfter = calls
        #expect(callsAfter == count)
        #expect(!listener.isValid)
        #expect(freed.value)
        #expect(isRefused(listener.localAddress))
        #expect(RunLoop.current.poll() == .finished)
        #expect(calls == callsAfter)
        withExtendedLifetime(clients) {}
    }

    @Test(arguments: [false, true])
    func `draining in the handler starts when the handler returns`(isNested: Bool) throws {
        let count = 2 * connectionsPerPass
        var (calls, depth) = (0, 0)
        let listener = try addListener { listener, _ in
            calls += 1
            depth += 1
            #expect(depth == 1)
            if calls == 1, isNested {
                RunLoop.current.perform(order: 0) { listener.drain() }
                RunLoop.current.poll()
            } else if calls == 1 {
                listener.drain()
            }
            #expect(!listener.isValid)
            depth -= 1
        }
        let clients = try (0..<count).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(calls == count)
        #expect(isRefused(listener.localAddress))
        withExtendedLifetime(clients) {}
    }

    @Test func `closing while draining ends the callbacks`() throws {
        var calls = 0
        let listener = try addListener { listener, _ in
            calls += 1
            RunLoop.current.poll()  // would find it ready, were it still watched
            listener.close()
        }
        let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        listener.drain()
        #expect(calls == 1)
        withExtendedLifetime(clients) {}
    }

    @Test func `a connection reset before it is accepted does not affect others`()
        async throws
    {
        try await onItsOwnThread {
            var bytes: [[UInt8]] = []
            let listener = try addListener { _, connection in
                connection.input.open()
                bytes.append(connection.input.read(upTo: 1))
            }
            let clients = try (0..<4).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
            for index in 0..<3 { clients[index].reset() }
            clients[3].send([7])
            while bytes.last != [7] { RunLoop.current.run(mode: .default, before: .minutesAway) }
            listener.close()
        }
    }

    @Test func `two loops that share a port get all connections between them`() async throws {
        try await onItsOwnThread {
            let count = 200
            let (counts, arrived) = (Shared([0, 0]), Countdown(count))
            let threads = try (0..<2).map { try RunLoopThread(name: "loop \($0)") }
            var address = SocketAddress.ownLoopback
            for (index, thread) in threads.enumerated() {
                address = try thread.runLoop.performAndWait { [address] in
                    let listener = try Listener(address, options: .init(reusesPort: true)) { _, _ in
                        counts.update { $0[index] += 1 }
                        arrived.count()
                    }
                    try RunLoop.current.add(listener, forMode: .default)
                    return listener.localAddress
                }
            }
            let clients = try (0..<count).map { [address] _ in try SocketPeer(connectedTo: address) }
            arrived.wait()
            for thread in threads { thread.stop() }
            #expect(counts.value.reduce(0, +) == count)
            #expect(!counts.value.contains(0))
            withExtendedLifetime(clients) {}
        }
    }

    @Test func `without reusesPort a port cannot be shared`() throws {
        let first = try Listener(.ownLoopback, options: .init(reusesPort: true)) { _, _ in }
        #expect(throws: Errno.addressInUse) { try Listener(first.localAddress) { _, _ in } }
    }

    @Test func `clients beyond the backlog wait until others are accepted`() throws {
        var calls = 0
        let listener = try Listener(.unixUnnamed, options: .init(backlog: 1)) { _, _ in calls += 1 }
        try RunLoop.current.add(listener, forMode: .default)
        var clients = try (0..<2).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        #expect(throws: Errno.resourceTemporarilyUnavailable) {
            try SocketPeer(connectedTo: listener.localAddress, isBlocking: false)
        }
        RunLoop.current.poll()
        #expect(calls == 2)
        clients.append(try SocketPeer(connectedTo: listener.localAddress, isBlocking: false))
        listener.close()
    }
}
