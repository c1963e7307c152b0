import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Descriptors and credentials that come with Unix-domain datagrams, and the credentials of a connection's peer.
@Suite(.runLoop) struct UnixPassingTests {
    @Test func `descriptors are passed with a datagram, closed on exec`() throws {
        let (sender, pipe) = (Datagrams(), try FileDescriptor.pipe())
        var texts: [String] = []
        let receiver = try sender.receiver(descriptorLimit: 3) { socket, bytes, datagram in
            #expect(bytes.byteCount == 1 && datagram.credentials == nil)
            for descriptor in datagram.descriptors {
                #expect(fcntl(descriptor.rawValue, F_GETFD) == FD_CLOEXEC)
                try! descriptor.closeAfter { _ = try descriptor.writeAll("text".utf8) }
            }
            texts.append("\(datagram.descriptors.count)")
            if texts.count == 3 { socket.close() }
        }
        for count in [1, 0, 2] {
            let passed = Array(repeating: pipe.writeEnd, count: count)
            #expect(try sender.socket.send([0], descriptors: passed))
        }
        try pipe.writeEnd.close()
        try RunLoop.current.add(receiver, forMode: .default)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(texts == ["1", "0", "2"])
        #expect(InputStream(descriptor: pipe.readEnd, closeWhenDone: true).readAll() == "texttexttext")
    }

    @Test func `descriptors that are not wanted, or not delivered any more, are closed`() throws {
        for limit in [0, 1] {
            let (sender, pipe) = (Datagrams(), try FileDescriptor.pipe())
            let receiver = try sender.receiver(descriptorLimit: limit) { socket, _, datagram in
                #expect(datagram.descriptors.count == limit)
                for descriptor in datagram.descriptors { try! descriptor.close() }
                socket.close()
            }
            for _ in 0..<5 { #expect(try sender.socket.send([0], descriptors: [pipe.writeEnd])) }
            try pipe.writeEnd.close()
            try RunLoop.current.add(receiver, forMode: .default)
            #expect(RunLoop.current.run(in: .default) == .finished)
            sender.socket.close()
            // The end, which comes when no writer is left.
            #expect(InputStream(descriptor: pipe.readEnd, closeWhenDone: true).readAll() == "")
        }
    }

    @Test(arguments: [false, true], [1, 2, 3, 4, 253])
    func `no more descriptors than the limit are received`(withCredentials: Bool, limit: Int) throws {
        let sender = Datagrams()
        var received: [Int] = []
        let receiver = try sender.receiver(
            descriptorLimit: limit, receivesCredentials: withCredentials
        ) { socket, _, datagram in
            received.append(datagram.descriptors.count)
            for descriptor in datagram.descriptors { try! descriptor.close() }
            #expect((datagram.credentials != nil) == withCredentials)
            #expect(datagram.hasLostDescriptors == (received.count == 2 && limit < 253))
            if received.count == 2 { socket.close() }
        }
        for count in [limit, limit + 1] {
            let passed = Array(repeating: FileDescriptor.standardInput, count: min(count, 253))
            #expect(try sender.socket.send([0], descriptors: passed))
        }
        try RunLoop.current.add(receiver, forMode: .default)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(received == [limit, limit])
    }

    @Test func `descriptors for which this process has no room are reported`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let sender = Datagrams()
                var datagrams: [DatagramSocket.Datagram] = []
                let receiver = try sender.receiver(descriptorLimit: 2) { socket, _, datagram in
                    datagrams.append(datagram)
                    socket.close()
                }
                try RunLoop.current.add(receiver, forMode: .default)
                // Opens the loop's own descriptors.
                RunLoop.current.run(in: .default, until: .distantPast)
                #expect(try sender.socket.send([0], descriptors: [.standardInput, .standardOutput]))
                var limit = rlimit()
                getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                let former = limit.rlim_cur
                limit.rlim_cur = 0
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                while datagrams.isEmpty { RunLoop.current.run(mode: .default, before: .distantFuture) }
                limit.rlim_cur = former
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                #expect(datagrams.map(\.descriptors) == [[]])
                #expect(datagrams.map(\.hasLostDescriptors) == [true])
            }
        }
    }

    @Test func `a sender without a process number here is reported as it is`() throws {
        let sender = Datagrams()
        // Sent before the receiver asks for credentials: the kernel does not know the process.
        #expect(try sender.socket.send([0]))
        var credentials: PeerCredentials?
        let receiver = try sender.receiver(receivesCredentials: true) { socket, _, datagram in
            credentials = datagram.credentials
            socket.close()
        }
        try RunLoop.current.add(receiver, forMode: .default)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(credentials?.processIdentifier == 0)
    }

    @Test func `a datagram's sender is reported on request`() throws {
        let sender = Datagrams()
        var credentials: PeerCredentials?
        let receiver = try sender.receiver(receivesCredentials: true) { socket, _, datagram in
            credentials = datagram.credentials
            socket.close()
        }
        #expect(try sender.socket.send([0]))
        try RunLoop.current.add(receiver, forMode: .default)
        #expect(RunLoop.current.run(in: .default) == .finished)
        #expect(credentials?.processIdentifier == getpid())
        #expect(credentials?.userIdentifier == getuid())
        #expect(credentials?.groupIdentifier == getgid())
    }

    @Test func `too many descriptors, closed ones and other families are refused`() throws {
        let sender = Datagrams()
        let many = Array(repeating: FileDescriptor.standardInput, count: 254)
        #expect(throws: Errno.invalidArgument) { try sender.socket.send([0], descriptors: many) }
        #expect(throws: Errno.badFileDescriptor) {
            try sender.socket.send([0], descriptors: [FileDescriptor(rawValue: 1 << 20)])
        }
        let other = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in }
        #expect(throws: Errno.invalidArgument) {
            try other.send([0], to: .ipv4Loopback(port: 9), descriptors: [.standardInput])
        }
    }

    @Test func `a connection knows its peer's process`() throws {
        let (first, second) = try socketPair()
        let streams = Stream.connection(descriptor: FileDescriptor(rawValue: first), closeWhenDone: true)
        #expect(streams.input.peerCredentials?.processIdentifier == getpid())
        #expect(streams.output.peerCredentials?.userIdentifier == getuid())
        close(second)
        let server = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let client = Stream.connection(to: try server.localAddress)
        #expect(client.input.peerCredentials == nil)
        client.input.open()
        _ = try server.accept()
        #expect(client.input.peerCredentials == nil)
        client.input.close()
        #expect(InputStream(data: []).peerCredentials == nil)
    }
}

/// Two connected Unix-domain datagram sockets.
private final class Datagrams {
    let socket: DatagramSocket
    private let other: FileDescriptor

    init() {
        var numbers: [CInt] = [0, 0]
        let type = CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue)
        precondition(socketpair(AF_UNIX, type, 0, &numbers) == 0, "cannot create sockets")
        socket = try! DatagramSocket(descriptor: FileDescriptor(rawValue: numbers[0])) { _, _, _ in }
        other = FileDescriptor(rawValue: numbers[1])
    }

    func receiver(
        descriptorLimit: Int = 0, receivesCredentials: Bool = false,
        receive: @escaping DatagramSocket.Receiver
    ) throws -> DatagramSocket {
        var options = DatagramSocket.Options()
        options.descriptorLimit = descriptorLimit
        options.receivesCredentials = receivesCredentials
        return try DatagramSocket(descriptor: other, options: options, receive: receive)
    }
}
