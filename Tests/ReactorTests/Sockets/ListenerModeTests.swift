import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// When a listener accepts, and how many.
@Suite(.runLoop) struct ListenerModeTests {
    @Test func `a listener accepts in its modes only, and connections wait in the backlog`() throws {
        let loop = RunLoop.current
        var calls = 0
        let listener = try addListener(.ownLoopback, .custom) { _, _ in calls += 1 }
        #expect(loop.contains(listener, forMode: .custom))
        #expect(!loop.contains(listener, forMode: .default))
        let client = try SocketPeer(connectedTo: listener.localAddress)
        #expect(loop.poll() == .finished)
        #expect(calls == 0)
        loop.poll(.custom)
        #expect(calls == 1)
        listener.close()
        #expect(!loop.contains(listener, forMode: .custom))
        withExtendedLifetime(client) {}
    }

    @Test func `a listener in the common modes accepts in each, and closing it leaves them empty`()
        async throws
    {
        try await onItsOwnThread {
            let loop = RunLoop.current
            var modes: [RunLoop.Mode?] = []
            let listener = try addListener(.ownLoopback, .common) { _, _ in
                modes.append(loop.currentMode)
            }
            let first = try SocketPeer(connectedTo: listener.localAddress)
            loop.poll(.tracking)
            let second = try SocketPeer(connectedTo: listener.localAddress)
            loop.poll()
            #expect(modes == [.tracking, .default])
            listener.close()
            #expect(loop.poll() == .finished)
            #expect(loop.poll(.tracking) == .finished)
            withExtendedLifetime((first, second)) {}
        }
    }

    @Test func `a listener that its handler removes accepts nothing until it is added again`() throws {
        let loop = RunLoop.current
        var calls = 0
        let listener = try addListener { listener, _ in
            calls += 1
            loop.remove(listener, forMode: .default)
        }
        let clients = try (0..<2).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == 1)
        #expect(listener.isValid)
        try loop.add(listener, forMode: .default)
        loop.poll()
        #expect(loop.poll() == .finished)
        #expect(calls == 2)
        withExtendedLifetime(clients) {}
    }

    @Test func `a listener removed from all its modes can join another loop`() async throws {
        let calls = Shared(0)
        try await onItsOwnThread {
            let listener = try addListener { _, _ in calls.update { $0 += 1 } }
            RunLoop.current.remove(listener, forMode: .default)
            let client = try SocketPeer(connectedTo: listener.localAddress)
            nonisolated(unsafe) let moved = listener
            try JoinableThread(name: "other") {
                try? RunLoop.current.add(moved, forMode: .default)
                RunLoop.current.poll()
                moved.close()
            }.join()
            withExtendedLifetime(client) {}
        }
        #expect(calls.value == 1)
    }

    @Test func `a closed listener is not added to a loop`() throws {
        let listener = try Listener(.ownLoopback) { _, _ in }
        listener.close()
        try RunLoop.current.add(listener, forMode: .default)
        #expect(!RunLoop.current.contains(listener, forMode: .default))
        #expect(RunLoop.current.poll() == .finished)
    }

    @Test func `a pass accepts a bounded number of connections, and other items get their turn`() async throws
    {
        try await onItsOwnThread {
            let most = connectionsPerPass
            let other = try TestPipe()
            var trace: [String] = []
            let listener = try addListener { listener, _ in
                trace.append("connection")
                if trace.count(where: { $0 == "connection" }) == most + 1 { listener.close() }
            }
            let source = DescriptorSource(other.readEnd, for: .readable) { source, _ in
                trace.append("other")
                source.cancel()
            }
            let clients = try (0..<most + 1).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
            try RunLoop.current.add(source, forMode: .default)
            other.put()
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(trace.count == most + 2)
            #expect(try #require(trace.firstIndex(of: "other")) <= most)
            withExtendedLifetime(clients) {}
        }
    }

    @Test func `accepting counts as handling a source`() throws {
        var calls = 0
        let listener = try addListener { _, _ in calls += 1 }
        let address = listener.localAddress
        let client = try JoinableThread(name: "client") { _ = try? SocketPeer(connectedTo: address) }
        #expect(RunLoop.current.run(mode: .default, before: .minutesAway))
        #expect(calls == 1)
        client.join()
        listener.close()
    }
}
