import CReactorTestSupport
import Glibc
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
        let (connections, failures) = (try connections(), Shared<[Errno?]>([]))
        let server = Task {
            try await connections.run(connectionErrors: { connection, error in
                failures.update { $0.append(error as? Errno) }
                #expect(connection.peerAddress != nil)
            }) { connection in
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
        #expect(failures.value == [.invalidArgument])
    }

    @Test func `a task that throws a CancellationError has no error to report`() async throws {
        let (connections, failures) = (try connections(), Shared(0))
        let server = Task {
            try await connections.run(connectionErrors: { _, _ in failures.update { $0 += 1 } }) {
                if try await $0.read(exactly: 1) == [0] { throw CancellationError() }
                throw Errno.canceled
            }
        }
        for text in ["\0", "other", "\0"] { _ = try echo(text, at: connections.localAddress) }
        connections.drain()
        try await server.value
        #expect(failures.value == 1)
    }

    @Test func `a socket that is passed on is served when its first owner has closed it`() async throws {
        let first = try connections()
        let second = try home.loop.connections(descriptor: #require(first.descriptor).duplicate())
        first.close()
        let server = Task {
            try await second.run { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
        }
        #expect(try echo("passed on", at: second.localAddress) == Array("passed on".utf8))
        second.close()
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

    @Test func `the connections that are served are counted`() async throws {
        let connections = try connections()
        let server = Task {
            try await connections.run { connection in
                for try await _ in connection.chunks() {}
            }
        }
        var peers = try (0..<3).map { _ in try SocketPeer(connectedTo: connections.localAddress) }
        await yieldUntil { connections.activeCount == 3 }
        peers.removeLast()
        await yieldUntil { connections.activeCount == 2 }
        connections.close()
        #expect(connections.activeCount == 2)
        peers = []
        try await server.value
        #expect(connections.activeCount == 0)
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

    @Test(arguments: [1, Int.max])
    func `a connection counts until its descriptor is closed, and not only until its task has ended`(
        limitPerPeer: Int
    ) async throws {
        let options = Listener.Options(connection: .init(closeTimeout: .seconds(600)))
        let connections = try home.loop.connections(at: .ownLoopback, options: options) { _ in }
        let (begun, ended) = (Shared(0), Shared(0))
        let server = Task {
            try await connections.run(limit: 1, limitPerPeer: limitPerPeer) { connection in
                begun.update { $0 += 1 }
                try await connection.open()
                try connection.send(pattern(65_536))
                ended.update { $0 += 1 }
            }
        }
        let silent = try narrowPeer(of: connections)
        ended.wait { $0 == 1 ? () : nil }
        let next = try SocketPeer(connectedTo: connections.localAddress)
        for _ in 0..<3 {
            home.loop.performSynchronously {}
            try waitForStreamsThread()
        }
        #expect(begun.value == 1)
        #expect(silent.receiveToEnd() == pattern(65_536))
        silent.close()
        #expect(next.receiveToEnd() == pattern(65_536))
        connections.close()
        try await server.value
    }

    @Test func `a peer that never reads is reset after the close timeout, and makes room for another`()
        async throws
    {
        let timeout = Duration.milliseconds(200)
        let options = Listener.Options(connection: .init(closeTimeout: timeout))
        let connections = try home.loop.connections(at: .ownLoopback, options: options) { _ in }
        let times = Shared<[ContinuousClock.Instant]>([])
        let server = Task {
            try await connections.run(limit: 1) { connection in
                times.update { $0.append(.now) }
                try await connection.open()
                try connection.send(pattern(65_536))
            }
        }
        let silent = try narrowPeer(of: connections)
        let next = try SocketPeer(connectedTo: connections.localAddress)
        #expect(next.receive(65_536) == pattern(65_536))
        #expect(times.value[1] - times.value[0] >= timeout)
        #expect(silent.receiveToEnd() == nil && errno == ECONNRESET)
        connections.close()
        try await server.value
    }

    /// Each duplicate of a descriptor counts, and one that has moved.
    @Test func `without descriptors a connection counts until its only one is closed`() async {
        await #expect(processExitsWith: .success) {
            let thread = try RunLoopThread(name: "server")
            let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: 0)) { _ in }
            let (begun, ended) = (Shared(0), Shared(0))
            Task {
                try await connections.run(limit: 1) { connection in
                    begun.update { $0 += 1 }
                    try await connection.open()
                    try connection.send(pattern(65_536))
                    try waitForStreamsThread()
                    withoutDescriptors { connection.close() }
                    ended.update { $0 += 1 }
                }
            }
            let silent = try narrowPeer(of: connections)
            ended.wait { $0 == 1 ? () : nil }
            let next = try SocketPeer(connectedTo: connections.localAddress)
            for _ in 0..<3 { thread.runLoop.performSynchronously {} }
            try #require(begun.value == 1)
            try #require(silent.receiveToEnd() == pattern(65_536))
            silent.close()
            try #require(next.receiveToEnd() == pattern(65_536))
        }
    }

    @Test(arguments: [true, false])
    func `a server that waits for room ends although its connections are still being closed`(
        isCancelled: Bool
    ) async throws {
        let connections = try connections()
        let ended = Answer<Void>()
        let server = Task {
            try await connections.run(limit: 1) { connection in
                try await connection.open()
                try connection.send(pattern(65_536))
                ended.give(())
            }
        }
        let silent = try narrowPeer(of: connections)
        ended.wait()
        home.loop.performSynchronously {}
        if isCancelled { server.cancel() } else { connections.close() }
        switch await server.result {
        case .success: #expect(!isCancelled)
        case .failure(let error): #expect(isCancelled && error is CancellationError)
        }
        #expect(silent.receiveToEnd() == pattern(65_536))
    }

    /// The kernel refuses to watch the listening socket, for which the server waits when it has accepted what is pending.
    @Test(.enabled(if: !isSanitized))
    func `a server that cannot watch its socket serves on, says why, and accepts later`() async {
        await #expect(processExitsWith: .success) {
            let (faults, begun) = (Shared<[IOError]>([]), Shared(0))
            let thread = try RunLoopThread(name: "server")
            let connections = try thread.runLoop.connections(at: .ipv4Loopback(port: 0)) { fault in
                faults.update { $0.append(fault) }
            }
            let (canEnd, endings) = (Answer<Void>(), Shared<[Bool]>([]))
            let address = connections.localAddress
            let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: address) }
            let isRefused = thread.runLoop.performSynchronously { reactor_test_refuse_epoll_additions(false) }
            guard isRefused else { return }
            let server = Task {
                try await connections.run { connection in
                    let isFirst = begun.update { count in
                        count += 1
                        return count == 1
                    }
                    guard isFirst else { return try await connection.write("x") }
                    await Task.detached { canEnd.wait() }.value
                    endings.update { $0.append(Task.isCancelled) }
                }
            }
            faults.wait { $0.isEmpty ? nil : () }
            let late = try SocketPeer(connectedTo: address)
            try #require(late.receiveToEnd() == Array("x".utf8))
            canEnd.give(())
            endings.wait { $0.isEmpty ? nil : () }
            try #require(endings.value == [false])
            try #require(faults.value.first?.errno == .noMemory)
            connections.close()
            try await server.value
            withExtendedLifetime(clients) {}
        }
    }

    @Test func `a peer that has as many connections as one may have is refused another`() async throws {
        let (connections, failures) = (try connections(), Shared<[Errno?]>([]))
        let server = Task {
            try await connections.run(
                limitPerPeer: 1,
                connectionErrors: { _, error in failures.update { $0.append((error as? IOError)?.errno) } }
            ) { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
        }
        let first = try SocketPeer(connectedTo: connections.localAddress)
        first.send("1")
        #expect(first.receive(1) == Array("1".utf8))
        let second = try SocketPeer(connectedTo: connections.localAddress)
        #expect(second.receive(upTo: 1) == nil)
        waitUntil { failures.value.first == Errno(rawValue: EUSERS) }
        first.shutDown()
        #expect(first.receiveToEnd() == [])
        waitUntil { (try? echo("3", at: connections.localAddress)) == Array("3".utf8) }
        connections.close()
        try await server.value
    }

    @Test func `the end of a connection makes room for one more of its peer's`() async throws {
        let connections = try connections()
        let server = Task {
            try await connections.run(limitPerPeer: 2) { connection in
                for try await chunk in connection.chunks() { try await connection.write(chunk) }
            }
        }
        /// A connection that has been answered; nil if it was refused.
        func connect() throws -> SocketPeer? {
            let peer = try SocketPeer(connectedTo: connections.localAddress)
            peer.send("x")
            return peer.receive(1) == Array("x".utf8) ? peer : nil
        }
        let (first, second) = (try connect(), try connect())
        first?.shutDown()
        #expect(first?.receiveToEnd() == [])
        var third: SocketPeer?
        waitUntil {
            third = try? connect()
            return third != nil
        }
        #expect(try connect() == nil)
        for peer in [second, third] { peer?.close() }
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

/// A client whose kernel takes a few kilobytes only.
private func narrowPeer(of connections: Listener.Connections) throws -> SocketPeer {
    let peer = try SocketPeer(family: CInt(connections.localAddress.family.rawValue))
    peer.narrow()
    try peer.connect(to: connections.localAddress)
    return peer
}
