import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ListenerRunTests {
    private let home = LoopThread()

    private func connections() throws -> Listener.Connections {
        try home.loop.connections(at: .ownLoopback) { Issue.record("\($0)") }
    }

    private func echo(_ text: String, at address: SocketAddress) throws -> [UInt8]? {
        let peer = try SocketPeer(connectedTo: address)
        peer.send(text)
        peer.shutDown()
        return peer.receiveToEnd()
    }

    @Test func `each connection has a child task on the loop, until the connections are drained`()
        async throws
    {
        let (connections, thread) = (try connections(), home.thread)
        let server = Task {
            try await connections.run { connection in
                #expect(thread.runLoop.isCurrent)
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
        }
        for text in ["one", "two"] {
            #expect(try echo(text, at: connections.localAddress) == Array(text.utf8))
        }
        connections.drain()
        try await server.value
        #expect(isRefused(connections.localAddress))
    }

    @Test func `an error of one connection's task ends that connection alone`() async throws {
        let connections = try connections()
        let server = Task {
            try await connections.run { connection in
                guard let chunk = try await connection.read(), chunk.first != 0 else {
                    throw Errno.invalidArgument
                }
                try await connection.write(chunk)
            }
        }
        #expect(try echo("\0", at: connections.localAddress) == [])
        #expect(try echo("fine", at: connections.localAddress) == Array("fine".utf8))
        connections.close()
        try await server.value
    }

    @Test func `cancelling ends the child tasks and stops accepting`() async throws {
        let address = try freePort()
        let loop = home.loop
        let (begun, ended) = (Answer<Void>(), Answer<Void>())
        let server = Task {
            try await Listener.run(at: address, on: loop) { connection in
                begun.give(())
                do { _ = try await connection.read() } catch is CancellationError { ended.give(()) }
            }
        }
        let peer = connectWhenReady(address)
        begun.wait()
        server.cancel()
        await #expect(throws: CancellationError.self) { try await server.value }
        ended.wait()
        #expect(peer.receiveToEnd() == [])
        #expect(isRefused(address))
    }

    @Test func `no more connections are served at once than the limits allow`() async throws {
        let connections = try connections()
        let (running, most) = (Shared(0), Shared(0))
        let server = Task {
            try await connections.run(limit: 2) { connection in
                let count = running.update { count -> Int in
                    count += 1
                    return count
                }
                most.update { $0 = max($0, count) }
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
                running.update { $0 -= 1 }
            }
        }
        let peers = try (0..<5).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
        for peer in peers {
            peer.send("x")
            peer.shutDown()
            #expect(peer.receiveToEnd() == Array("x".utf8))
        }
        #expect(most.value <= 2)
        connections.close()
        try await server.value
    }

    @Test func `a peer that has as many connections as one may have is refused another`() async throws {
        let connections = try connections()
        let server = Task {
            try await connections.run(limitPerPeer: 1) { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
        }
        let first = try SocketPeer(connectedTo: connections.localAddress)
        first.send("1")
        #expect(first.receive(1) == Array("1".utf8))
        let second = try SocketPeer(connectedTo: connections.localAddress)
        #expect(second.receive(upTo: 1) == nil)
        first.shutDown()
        #expect(first.receiveToEnd() == [])
        waitUntil { (try? echo("3", at: connections.localAddress)) == Array("3".utf8) }
        connections.close()
        try await server.value
    }

    @Test func `peers over IPv4 are counted apart at an address of IPv6 too`() async throws {
        let connections = try home.loop.connections(at: .ipv6Any(port: 0)) { Issue.record("\($0)") }
        let server = Task {
            try await connections.run(limitPerPeer: 1) { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
        }
        let port = try #require(connections.localAddress.port)
        let peers = try (1...2 as ClosedRange<UInt32>).map { number in
            let peer = try SocketPeer(family: CInt(SocketAddress.Family.ipv4.rawValue))
            try peer.bind(to: .ipv4(0x7f00_0000 + number, port: 0))
            try peer.connect(to: .ipv4Loopback(port: port))
            return peer
        }
        for peer in peers {
            peer.send("x")
            #expect(peer.receive(1) == Array("x".utf8))
        }
        let third = try SocketPeer(connectedTo: .ipv4Loopback(port: port))
        #expect(third.receive(upTo: 1) == nil)
        for peer in peers { peer.close() }
        connections.close()
        try await server.value
    }

    @Test func `peers over IPv6 are counted by their network of 64 bits`() throws {
        func network(_ text: String) throws -> ClientNetwork { ClientNetwork(SocketAddress(text)) }
        #expect(try network("[2001:db8::1]:1") == network("[2001:db8::ffff:0:0:2]:2"))
        #expect(try network("[2001:db8::1]:1") != network("[2001:db8:0:1::1]:1"))
        #expect(try network("[::ffff:192.0.2.1]:1") == network("192.0.2.1:2"))
        #expect(try network("[::ffff:192.0.2.1]:1") != network("[::ffff:192.0.2.2]:1"))
        #expect(try network("[fe80::1%lo]:1") != network("[fe80::1]:1"))
    }

    /// An address at which nothing listens.
    private func freePort() throws -> SocketAddress {
        let listener = try SocketPeer(listeningAt: .ownLoopback)
        defer { listener.close() }
        return try listener.localAddress
    }

    private func connectWhenReady(_ address: SocketAddress) -> SocketPeer {
        while true {
            if let peer = try? SocketPeer(connectedTo: address) { return peer }
        }
    }
}
