import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Listening, accepting, draining and closing.
@Suite(.runLoop) struct ListenerTests {
    private let loop = RunLoop.current

    @Test(arguments: Place.allCases)
    func `an accepted connection has unopened streams and a non-blocking socket`(place: Place) throws {
        let folder = TemporaryFolder()
        var accepted: [Connection] = []
        let listener = try addListener(place.address(in: folder)) { accepted.append($1) }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        #expect(loop.run(mode: .default, before: .minutesAway))
        let connection = try #require(accepted.first)
        let streams = [connection.streams.input, connection.streams.output] as [Stream]
        #expect(streams.allSatisfy { $0.streamStatus == .notOpen })
        #expect(try connection.peerAddress == client.localAddress)
        let socket = try #require(connection.descriptor)
        #expect(fcntl(socket.rawValue, F_GETFL) & O_NONBLOCK != 0)
        #expect(fcntl(socket.rawValue, F_GETFD) & FD_CLOEXEC != 0)
        if connection.peerAddress?.port != nil {
            #expect(socket.socketOption(CInt(IPPROTO_TCP), TCP_NODELAY) == 1)
        }
        for stream in streams { stream.open() }
        client.send([1, 2, 3])
        #expect(connection.streams.input.read(upTo: 10) == [1, 2, 3])
        #expect(connection.streams.output.write([4, 5]) == 2)
        for stream in streams { stream.close() }
        #expect(client.receiveToEnd() == [4, 5])
        listener.close()
        #expect(loop.poll() == .finished)
    }

    @Test func `bytes that came before a connection was accepted are reported in the next pass`() throws {
        var (pass, acceptedIn, reportedIn) = (0, 0, 0)
        var accepted: Connection?
        loop.observe(.beforeSources) { _ in pass += 1 }
        let delegate = HandlerDelegate { stream, event in
            guard event == .hasBytesAvailable else { return }
            reportedIn = pass
            loop.stop()
        }
        let listener = try addListener(.ipv4Loopback(port: 0)) { _, connection in
            (accepted, acceptedIn) = (connection, pass)
            for stream in [connection.streams.input, connection.streams.output] as [Stream] {
                stream.delegate = delegate
                stream.schedule(in: loop, forMode: .default)
                stream.open()
            }
        }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        client.send([1])
        #expect(loop.run(in: .default) == .stopped)
        #expect(reportedIn == acceptedIn + 1)
        accepted?.close()
        listener.close()
    }

    @Test func `without descriptors a listener backs off for longer each time, and anew after a connection`()
        async
    {
        await #expect(processExitsWith: .success) {
            try onAThread {
                try withVirtualTime { time in
                    var count = 0
                    let listener = try Listener(.ipv4Loopback(port: 0)) { _, connection in
                        count += 1
                        connection.close()
                    } acceptErrors: {
                        #expect($1.errno == .tooManyOpenFiles)
                    }
                    try RunLoop.current.add(listener, forMode: .default)
                    time.advance(by: .zero)
                    let clients = try (0..<2).map { _ in try SocketPeer(family: AF_INET, SOCK_STREAM) }
                    for (index, client) in clients.enumerated() {
                        try client.connect(to: listener.localAddress)
                        withoutDescriptors {
                            time.advance(by: .zero)
                            // 10, 20, 40 and a part of 80 ms.
                            time.advance(by: .milliseconds(75))
                        }
                        time.advance(by: .milliseconds(74))
                        #expect(count == index)
                        time.advance(by: .milliseconds(2))
                        #expect(count == index + 1)
                    }
                    listener.close()
                }
            }
        }
    }

    @Test(arguments: [false, true])
    func `a listener at the IPv6 wildcard accepts IPv4 unless isIPv6Only is set`(isIPv6Only: Bool) throws {
        var peers: [SocketAddress] = []
        let listener = try Listener(.ipv6Any(port: 0), options: .init(isIPv6Only: isIPv6Only)) {
            peers.append($1.peerAddress!)
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
    func `a port is in use until its listener closes, unless it is shared`(reusesPort: Bool) throws {
        let first = try Listener(.ownLoopback, options: .init(reusesPort: reusesPort)) { _, _ in }
        #expect(first.localAddress.port != 0)
        expectErrno(.addressInUse) { try Listener(first.localAddress) { _, _ in } }
        if reusesPort {
            let second = try Listener(first.localAddress, options: .init(reusesPort: true)) { _, _ in }
            #expect(second.localAddress == first.localAddress)
        }
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
        expectErrno(.addressInUse) {
            try Listener(listener.localAddress, options: .init(reusesAddress: false)) { _, _ in }
        }
        #expect(listenAgain(listener.localAddress))
    }

    // MARK: Modes

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

    // MARK: Adopted sockets

    /// A blocking socket, bound to loopback.
    private func makeSocket(listens: Bool) throws -> FileDescriptor {
        let socket = try SocketPeer(family: AF_INET)
        try socket.bind(to: .ownLoopback)
        if listens { try socket.listen() }
        return try socket.descriptor.duplicate()
    }

    @Test func `an adopted socket is close-on-exec, and never blocks the loop`() throws {
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
        expectErrno(.invalidArgument) { try Listener(descriptor: descriptor) { _, _ in } }
        // Its port is free again.
        #expect(listenAgain(address))
        let pipe = try FileDescriptor.pipe()
        expectErrno(.notSocket) { try Listener(descriptor: pipe.readEnd) { _, _ in } }
        try pipe.writeEnd.close()
    }

    @Test func `the file of an adopted socket is not removed`() throws {
        let folder = TemporaryFolder()
        let address = try SocketAddress(unixPath: FilePath(folder.path("socket")))
        let socket = try SocketPeer(listeningAt: address)
        let listener = try Listener(descriptor: socket.descriptor.duplicate()) { _, _ in }
        #expect(listener.localAddress == address)
        listener.close()
        #expect(folder.names == ["socket"])
    }

    // MARK: Closing, draining and the backlog

    @Test func `closing disconnects the clients in the backlog`() throws {
        let listener = try addListener { _, _ in Issue.record("called") }
        try withClients(1, of: listener) { clients in
            listener.close()
            var byte: UInt8 = 0
            expectErrno(.connectionReset) {
                try SystemCall.make { read(clients[0].number, &byte, 1) }
            }
        }
        #expect(isRefused(listener.localAddress))
        #expect(loop.poll() == .finished)
    }

    @Test(arguments: [false, true])
    func `draining accepts all pending connections and then closes`(isInLoop: Bool) throws {
        let count = 3 * connectionsPerPass
        let freed = Shared(false)
        var calls = 0
        let listener = try addListener(canary: AtEnd { freed.value = true }) { _, _ in calls += 1 }
        if !isInLoop { loop.remove(listener, forMode: .default) }
        try withClients(count, of: listener) { _ in
            listener.drain()
            #expect(calls == count)
            #expect(!listener.isValid && freed.value)
            #expect(isRefused(listener.localAddress))
            #expect(loop.poll() == .finished && calls == count)
        }
    }

    @Test(arguments: [false, true])
    func `draining in the handler starts when the handler returns`(isNested: Bool) throws {
        let count = 2 * connectionsPerPass
        var (calls, depth) = (0, 0)
        let listener = try addListener { [loop] listener, _ in
            calls += 1
            depth += 1
            #expect(depth == 1)
            if calls == 1, isNested {
                loop.perform(order: 0) { listener.drain() }
                loop.poll()
            } else if calls == 1 {
                listener.drain()
            }
            depth -= 1
        }
        try withClients(count, of: listener) { _ in #expect(loop.run(in: .default) == .finished) }
        #expect(!listener.isValid)
        #expect(calls == count)
        #expect(isRefused(listener.localAddress))
    }

    @Test func `draining ends although each connection brings another one`() throws {
        var (calls, peers, options) = (0, [SocketPeer](), Listener.Options())
        options.backlog = 1
        let listener = try Listener(.ipv4Loopback(port: 0), options: options) { listener, connection in
            calls += 1
            connection.close()
            if calls < 20, let peer = try? SocketPeer(connectedTo: listener.localAddress) {
                peers.append(peer)
            }
        }
        try loop.add(listener, forMode: .default)
        peers.append(try SocketPeer(connectedTo: listener.localAddress))
        listener.drain()
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == 2 && !listener.isValid)
    }

    @Test func `closing while draining ends the callbacks`() throws {
        var calls = 0
        let listener = try addListener { [loop] listener, _ in
            calls += 1
            loop.poll()  // would find it ready, were it still watched
            listener.close()
        }
        try withClients(3, of: listener) { _ in listener.drain() }
        #expect(calls == 1)
    }
}

#if DEBUG
@testable import Reactor
#endif

/// Running out of descriptors.
@Suite(.runLoop) struct ListenerFaultTests {
    @Test func `without descriptors a listener backs off and loses no client`() async throws {
        let lines = try await probeMainLoop("out of descriptors for connections")
        #expect(
            lines == [
                "true true", "connections 0 faults 1 calm true", "finished", "connections 3 faults 1",
            ])
    }

    @Test func `a listener may be removed or closed while it backs off`() async throws {
        let lines = try await probeMainLoop("leaving during a back-off")
        #expect(lines == ["finished true true", "finished 1", "finished false true", "finished 0"])
    }

    @Test func `draining without descriptors accepts the backlog when there are some`() async throws {
        let lines = try await probeMainLoop("draining without descriptors")
        #expect(lines == ["true", "true 0", "finished false 3", "true", "false 0", "finished false 0"])
    }

    @Test func `connections leave some descriptors to the rest of the program`() async throws {
        let lines = try await probeMainLoop("descriptors beside connections")
        #expect(lines == ["true", "accepted 6 left 4", "accepted 7 left 4"])
    }

    @Test func `connections leave them although the limit was lowered meanwhile`() async throws {
        let lines = try await probeMainLoop("fewer descriptors beside connections")
        #expect(lines == ["accepted 47"])
    }

    @Test func `a socket that was shut down is a fault, and the loop does not spin`() async throws {
        #expect(try await probeMainLoop("a listener that is shut down") == ["true", "calm true"])
    }

    #if DEBUG
    @Test func `delays double from 10 to 320 ms, and start again after a success`() {
        var backoff = AcceptBackoff()
        let lengths = (0..<8).map { _ in backoff.next() }
        #expect(lengths == [10, 20, 40, 80, 160, 320, 320, 320].map { .milliseconds($0) })
        backoff.reset()
        #expect(backoff.next() == .milliseconds(10))
    }

    @Test func `a fault is reported at once, and then at most once a second`() {
        var backoff = AcceptBackoff()
        let start = Deadline(uptimeNanoseconds: 5)
        let reports = [0, 999, 1000, 1999].map { backoff.reports(at: start + .milliseconds($0)) }
        #expect(reports == [true, false, true, false])
    }
    #endif
}
