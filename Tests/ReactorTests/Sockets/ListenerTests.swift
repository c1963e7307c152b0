import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Listening, and accepted connections.
@Suite(.runLoop) struct ListenerTests {
    @Test(arguments: Place.allCases)
    func `an accepted connection has streams in both directions`(place: Place) throws {
        let folder = TemporaryFolder()
        var received: [UInt8] = []
        let listener = try addListener(place.address(in: folder)) { listener, connection in
            #expect(connection.input.streamStatus == .notOpen)
            #expect(connection.output.streamStatus == .notOpen)
            connection.input.open()
            connection.output.open()
            received = connection.input.read(upTo: 10)
            connection.output.write([4, 5])
            connection.input.close()
            connection.output.close()
            listener.close()
        }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        client.send([1, 2, 3])
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(received == [1, 2, 3])
        #expect(client.receiveToEnd() == [4, 5])
    }

    @Test func `the peer's address is the client's local address`() throws {
        var peers: [SocketAddress] = []
        let listener = try addListener { _, connection in peers.append(connection.peerAddress) }
        let clients = try (0..<3).map { _ in try SocketPeer(connectedTo: listener.localAddress) }
        RunLoop.current.poll()
        let addresses = try clients.map { try SocketAddress.local(of: $0.descriptor) }
        #expect(peers == addresses)
        listener.close()
    }

    @Test func `a Unix-domain client without a name is unnamed`() throws {
        var peers: [SocketAddress] = []
        let listener = try addListener(.unixUnnamed) { _, connection in
            peers.append(connection.peerAddress)
        }
        #expect(listener.localAddress.unixAbstractName?.isEmpty == false)
        let client = try SocketPeer(connectedTo: listener.localAddress)
        RunLoop.current.poll()
        #expect(peers == [.unixUnnamed])
        listener.close()
        withExtendedLifetime(client) {}
    }

    @Test func `with port 0 localAddress has the port that the kernel chose`() throws {
        let listeners = try (0..<2).map { _ in try Listener(.ownLoopback) { _, _ in } }
        let ports = listeners.map(\.localAddress.port)
        #expect(ports[0] != ports[1])
        #expect(!ports.contains(0))
    }

    @Test func `a connection whose streams are released is closed`() throws {
        let listener = try addListener { _, _ in }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        RunLoop.current.poll()
        #expect(client.receiveToEnd() == [])
        listener.close()
    }

    @Test func `accepted sockets are non-blocking, close-on-exec and without delay`() throws {
        var numbers: [CInt] = []
        let listener = try addListener { _, connection in
            guard
                let number = (connection.input.property(forKey: .socketDescriptorKey) as? FileDescriptor)?
                    .rawValue
            else {
                return
            }
            numbers.append(number)
            let socket = FileDescriptor(rawValue: number)
            #expect(fcntl(number, F_GETFL) & O_NONBLOCK != 0)
            #expect(fcntl(number, F_GETFD) & FD_CLOEXEC != 0)
            #expect(socket.socketOption(CInt(IPPROTO_TCP), TCP_NODELAY) == 1)
        }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        RunLoop.current.poll()
        #expect(numbers.count == 1)
        listener.close()
        withExtendedLifetime(client) {}
    }

    @Test(arguments: [false, true])
    func `a listener at the IPv6 wildcard accepts IPv4 unless isIPv6Only is set`(isIPv6Only: Bool)
        async throws
    {
        try await onItsOwnThread {
            var peers: [SocketAddress] = []
            let listener = try Listener(.ipv6Any(port: 0), options: .init(isIPv6Only: isIPv6Only)) {
                _, connection in
                peers.append(connection.peerAddress)
            }
            try RunLoop.current.add(listener, forMode: .default)
            let port = try #require(listener.localAddress.port)
            let six = try SocketPeer(connectedTo: .ipv6Loopback(port: port))
            let four = try? SocketPeer(connectedTo: .ipv4Loopback(port: port))
            RunLoop.current.poll()
            // Another process may listen on the same port of IPv4, so only what arrives here counts.
            #expect(peers.count == (isIPv6Only ? 1 : 2))
            #expect(!peers.map(\.isLoopback).contains(false))
            listener.close()
            withExtendedLifetime((six, four)) {}
        }
    }

    @Test func `a port is in use until its listener closes`() throws {
        let first = try Listener(.ownLoopback) { _, _ in }
        #expect(throws: Errno.addressInUse) { try Listener(first.localAddress) { _, _ in } }
        first.close()
        #expect(listenAgain(first.localAddress))
    }

    @Test func `a server can restart at once despite connections in TIME_WAIT`() throws {
        let listener = try addListener { _, _ in }
        let client = try SocketPeer(connectedTo: listener.localAddress)
        // The server closes first: its end lingers (TIME_WAIT) once the client has closed too.
        RunLoop.current.poll()
        #expect(client.receiveToEnd() == [])
        try client.descriptor.shutDown()
        listener.close()
        let options = Listener.Options(reusesAddress: false)
        #expect(throws: Errno.addressInUse) {
            try Listener(listener.localAddress, options: options) { _, _ in }
        }
        #expect(listenAgain(listener.localAddress))
    }

    @Test func `listening at another machine's address fails`() {
        #expect(throws: Errno.addressNotAvailable) { try Listener(.ipv4(0xc000_0201, port: 0)) { _, _ in } }
    }
}

extension FileDescriptor {
    fileprivate func shutDown() throws { try SystemCall.make { shutdown(rawValue, CInt(SHUT_RDWR)) } }
}
