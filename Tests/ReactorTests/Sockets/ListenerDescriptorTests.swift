import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Listeners that adopt an existing socket.
@Suite(.runLoop) struct ListenerDescriptorTests {
    /// A blocking socket, bound to loopback.
    private func makeSocket(listens: Bool = true) throws -> FileDescriptor {
        let socket = try SocketPeer(family: AF_INET)
        try socket.bind(to: .ownLoopback)
        if listens { try socket.listen() }
        return try socket.descriptor.duplicate()
    }

    @Test func `a listening socket can be adopted, and never blocks the loop`() async throws {
        let descriptor = try makeSocket()
        let address = try SocketAddress.local(of: descriptor)
        try await onItsOwnThread {
            var calls = 0
            let listener = try Listener(descriptor: descriptor) { _, _ in calls += 1 }
            #expect(listener.localAddress == address)
            try RunLoop.current.add(listener, forMode: .default)
            let client = try SocketPeer(connectedTo: listener.localAddress)
            RunLoop.current.poll()
            #expect(calls == 1)
            listener.close()
            #expect(isRefused(listener.localAddress))
            withExtendedLifetime(client) {}
        }
    }

    @Test func `adopted sockets are close-on-exec`() throws {
        let descriptor = try makeSocket()
        #expect(fcntl(descriptor.rawValue, F_SETFD, 0) == 0)
        let listener = try Listener(descriptor: descriptor) { _, _ in }
        #expect(fcntl(descriptor.rawValue, F_GETFD) & FD_CLOEXEC != 0)
        listener.close()
        let datagrams = FileDescriptor(rawValue: socket(AF_INET, CInt(SOCK_DGRAM.rawValue), 0))
        let receiver = try DatagramSocket(descriptor: datagrams) { _, _, _ in }
        #expect(fcntl(datagrams.rawValue, F_GETFD) & FD_CLOEXEC != 0)
        receiver.close()
    }

    @Test func `a socket that does not listen is refused and closed`() throws {
        let descriptor = try makeSocket(listens: false)
        let address = try SocketAddress.local(of: descriptor)
        #expect(throws: Errno.invalidArgument) { try Listener(descriptor: descriptor) { _, _ in } }
        // Its port is free again.
        #expect(listenAgain(address))
    }

    @Test func `a pipe is refused`() throws {
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
