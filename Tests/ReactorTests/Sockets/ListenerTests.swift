import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Listening, accepted connections, and when they are accepted.
@Suite(.runLoop) struct ListenerTests {
    private let loop = RunLoop.current

    @Test(arguments: Place.allCases)
    func `an accepted connection has two unopened streams, its peer's address and a non-blocking socket`(
        place: Place
    ) throws {
        let folder = TemporaryFolder()
        var accepted: [Listener.Connection] = []
        let listener = try addListener(place.address(in: folder)) { accepted.append($1) }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        #expect(loop.run(mode: .default, before: .minutesAway))
        let connection = try #require(accepted.first)
        let streams = [connection.input, connection.output] as [Stream]
        #expect(streams.allSatisfy { $0.streamStatus == .notOpen })
        #expect(try connection.peerAddress == client.localAddress)
        let socket = try #require(connection.input.socketDescriptor)
        #expect(fcntl(socket.rawValue, F_GETFL) & O_NONBLOCK != 0)
        #expect(fcntl(socket.rawValue, F_GETFD) & FD_CLOEXEC != 0)
        if connection.peerAddress.port != nil {
            #expect(socket.socketOption(CInt(IPPROTO_TCP), TCP_NODELAY) == 1)
        }
        for stream in streams { stream.open() }
        client.send([1, 2, 3])
        #expect(connection.input.read(upTo: 10) == [1, 2, 3])
        #expect(connection.output.write([4, 5]) == 2)
        for stream in streams { stream.close() }
        #expect(client.receiveToEnd() == [4, 5])
        listener.close()
        #expect(loop.poll() == .finished)
    }

    @Test(arguments: [false, true])
    func `a listener at the IPv6 wildcard accepts IPv4 unless isIPv6Only is set`(isIPv6Only: Bool) throws {
        var peers: [SocketAddress] = []
        let listener = try Listener(.ipv6Any(port: 0), options: .init(isIPv6Only: isIPv6Only)) {
            peers.append($1.peerAddress)
        }
        try loop.add(listener, forMode: .default)
        let port = try #require(listener.localAddress.port)
        let six = try SocketPeer(connectedTo: .ipv6Loopback(port: port))
        let four = try? SocketPeer(connectedTo: .ipv4Loopback(port: port))
        loop.poll()
        // Another process may listen on the same port of IPv4, so only what arrives here counts.
        #expect(peers.count == (isIPv6Only ? 1 : 2))
        #expect(peers.allSatisfy { $0.isLoopback })
        listener.close()
        withExtendedLifetime((six, four)) {}
    }

    // MARK: Addresses

    @Test(arguments: [false, true])
    func `the port that the kernel chose is in use until its listener closes`(reusesPort: Bool) throws {
        let first = try Listener(.ownLoopback, options: .init(reusesPort: reusesPort)) { _, _ in }
        #expect(first.localAddress.port != 0)
        #expect(throws: Errno.addressInUse) { try Listener(first.localAddress) { _, _ in } }
        first.close()
        #expect(listenAgain(first.localAddress))
    }

    @Test func `a server can restart at once despite connections in TIME_WAIT`() throws {
        let listener = try addListener { _, _ in }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        // The server closes first, by releasing its streams: its end lingers once the client has closed too.
        loop.poll()
        #expect(client.receiveToEnd() == [])
        try SystemCall.make { shutdown(client.number, CInt(SHUT_RDWR)) }
        listener.close()
        #expect(throws: Errno.addressInUse) {
            try Listener(listener.localAddress, options: .init(reusesAddress: false)) { _, _ in }
        }
        #expect(listenAgain(listener.localAddress))
    }

    @Test func `listening at another machine's address fails`() {
        #expect(throws: Errno.addressNotAvailable) { try Listener(.ipv4(0xc000_0201, port: 0)) { _, _ in } }
    }

    // MARK: Modes

    @Test func `a listener accepts in its modes only, and connections wait in the backlog`() throws {
        var calls = 0
        let listener = try addListener(.ownLoopback, .custom) { _, _ in calls += 1 }
        #expect(loop.contains(listener, forMode: .custom) && !loop.contains(listener, forMode: .default))
        try withClients(1, of: listener) { _ in
            #expect(loop.poll() == .finished && calls == 0)
            loop.poll(.custom)
            #expect(calls == 1)
        }
        listener.close()
        #expect(!loop.contains(listener, forMode: .custom))
        try loop.add(listener, forMode: .default)
        #expect(!loop.contains(listener, forMode: .default) && loop.poll() == .finished)
    }

    @Test func `a listener in the common modes accepts in each, and closing it leaves them empty`() throws {
        var modes: [RunLoop.Mode?] = []
        let listener = try addListener(.ownLoopback, .common) { [loop] _, _ in modes.append(loop.currentMode)
        }
        for mode in [RunLoop.Mode.tracking, .default] {
            try withClients(1, of: listener) { _ in _ = loop.poll(mode) }
        }
        #expect(modes == [.tracking, .default])
        listener.close()
        #expect(loop.poll() == .finished && loop.poll(.tracking) == .finished)
    }

    @Test func `a listener that its handler removes accepts nothing until it is added again`() throws {
        var calls = 0
        let listener = try addListener { [loop] listener, _ in
            calls += 1
            loop.remove(listener, forMode: .default)
        }
        try withClients(2, of: listener) { _ in
            #expect(loop.run(in: .default) == .finished)
            #expect(calls == 1 && listener.isValid)
            try loop.add(listener, forMode: .default)
            loop.poll()
            #expect(loop.poll() == .finished && calls == 2)
        }
    }

    @Test func `a listener removed from all its modes can join another loop`() throws {
        let calls = Shared(0)
        let listener = try addListener { _, _ in calls.update { $0 += 1 } }
        loop.remove(listener, forMode: .default)
        let moved = Carrier(listener)
        try withClients(1, of: listener) { _ in
            try onAThread {
                try RunLoop.current.add(moved.value, forMode: .default)
                RunLoop.current.poll()
                moved.value.close()
            }
        }
        #expect(calls.value == 1)
    }

    @Test func `a pass accepts a bounded number of connections, and other items get their turn`() throws {
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
        try withClients(most + 1, of: listener) { _ in
            try loop.add(source, forMode: .default)
            other.put()
            #expect(loop.run(in: .default) == .finished)
            #expect(trace.count == most + 2)
            #expect(try #require(trace.firstIndex(of: "other")) <= most)
        }
    }

    @Test func `two loops that share a port get all connections between them`() throws {
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
        #expect(counts.value.reduce(0, +) == count && !counts.value.contains(0))
        withExtendedLifetime(clients) {}
    }

    // MARK: Adopted sockets

    /// A blocking socket, bound to loopback.
    private func makeSocket(listens: Bool) throws -> FileDescriptor {
        let socket = try SocketPeer(family: AF_INET)
        try socket.bind(to: .ownLoopback)
        if listens { try socket.listen() }
        return try socket.descriptor.duplicate()
    }

    @Test func `a listening socket can be adopted, becomes close-on-exec, and never blocks the loop`() throws
    {
        let descriptor = try makeSocket(listens: true)
        let address = try SocketAddress.local(of: descriptor)
        var calls = 0
        #expect(fcntl(descriptor.rawValue, F_SETFD, 0) == 0)
        let listener = try Listener(descriptor: descriptor) { _, _ in calls += 1 }
        #expect(fcntl(descriptor.rawValue, F_GETFD) & FD_CLOEXEC != 0)
        #expect(listener.localAddress == address)
        try loop.add(listener, forMode: .default)
        try withClients(1, of: listener) { _ in _ = loop.poll() }
        #expect(calls == 1)
        listener.close()
        #expect(isRefused(address))
    }

    @Test func `a descriptor that does not listen is refused and closed`() throws {
        let descriptor = try makeSocket(listens: false)
        let address = try SocketAddress.local(of: descriptor)
        #expect(throws: Errno.invalidArgument) { try Listener(descriptor: descriptor) { _, _ in } }
        // Its port is free again.
        #expect(listenAgain(address))
        let pipe = try FileDescriptor.pipe()
        #expect(throws: Errno.notSocket) { try Listener(descriptor: pipe.readEnd) { _, _ in } }
        try pipe.writeEnd.close()
    }

    @Test func `the file of an adopted socket is not removed`() throws {
        let folder = TemporaryFolder()
        let address = try SocketAddress(unixPath: folder.path("socket"))
        let socket = try SocketPeer(listeningAt: address)
        let listener = try Listener(descriptor: socket.descriptor.duplicate()) { _, _ in }
        #expect(listener.localAddress == address)
        listener.close()
        #expect(folder.names == ["socket"])
    }
}
