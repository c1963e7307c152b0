import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Descriptors and credentials that come with Unix-domain datagrams, and the credentials of a connection's peer.
@Suite(.runLoop) struct UnixPassingTests {
    private let sender: DatagramSocket
    private let other: SocketPeer

    init() throws {
        let pair = try Channel.datagrams.open()
        sender = try DatagramSocket(descriptor: pair.reader) { _, _, _ in }
        other = SocketPeer(pair.writer.rawValue)
    }

    /// Receives `count` datagrams on the current loop, closing the descriptors that come with them.
    private func receive(
        _ count: Int, descriptorLimit: Int = 0, receivesCredentials: Bool = false,
        _ body: @escaping (RawSpan, DatagramSocket.Metadata) throws -> Void = { _, _ in }
    ) throws -> [DatagramSocket.Metadata] {
        var datagrams: [DatagramSocket.Metadata] = []
        var options = DatagramSocket.Options()
        (options.descriptorLimit, options.receivesCredentials) = (descriptorLimit, receivesCredentials)
        let descriptor = try other.descriptor.duplicate()
        other.close()
        let receiver = try DatagramSocket(descriptor: descriptor, options: options) {
            socket, bytes, datagram in
            do { try body(bytes, datagram) } catch { Issue.record(error) }
            for descriptor in datagram.descriptors { try? descriptor.close() }
            datagrams.append(datagram)
            if datagrams.count == count { socket.close() }
        }
        try RunLoop.current.add(receiver, forMode: .default)
        #expect(RunLoop.current.run(in: .default) == .finished)
        return datagrams
    }

    @Test func `descriptors are passed with a datagram, closed on exec`() throws {
        let pipe = try FileDescriptor.pipe()
        for count in [1, 0, 2] {
            #expect(try sender.send([0], descriptors: Array(repeating: pipe.writeEnd, count: count)))
        }
        try pipe.writeEnd.close()
        let datagrams = try receive(3, descriptorLimit: 3) { bytes, datagram in
            #expect(bytes.byteCount == 1 && datagram.credentials == nil)
            for descriptor in datagram.descriptors {
                #expect(fcntl(descriptor.rawValue, F_GETFD) == FD_CLOEXEC)
                _ = try descriptor.writeAll("text".utf8)
            }
        }
        #expect(datagrams.map(\.descriptors.count) == [1, 0, 2])
        #expect(InputStream(descriptor: pipe.readEnd, closeWhenDone: true).readAll() == "texttexttext")
    }

    @Test(arguments: [0, 1])
    func `descriptors that are not wanted, or not delivered any more, are closed`(limit: Int) throws {
        let pipe = try FileDescriptor.pipe()
        for _ in 0..<5 { #expect(try sender.send([0], descriptors: [pipe.writeEnd])) }
        try pipe.writeEnd.close()
        #expect(try receive(1, descriptorLimit: limit).map(\.descriptors.count) == [limit])
        sender.close()
        // The end, which comes when no writer is left.
        #expect(InputStream(descriptor: pipe.readEnd, closeWhenDone: true).readAll() == "")
    }

    @Test(arguments: [false, true], [1, 2, 3, 4, 253])
    func `no more descriptors than the limit are received`(withCredentials: Bool, limit: Int) throws {
        let receivesAll = limit == 253  // the most that the kernel passes
        for count in [limit, limit + 1] {
            let passed = Array(repeating: FileDescriptor.standardInput, count: min(count, 253))
            #expect(try sender.send([0], descriptors: passed))
        }
        let datagrams = try receive(2, descriptorLimit: limit, receivesCredentials: withCredentials)
        #expect(datagrams.map(\.descriptors.count) == [limit, limit])
        #expect(datagrams.map(\.hasLostDescriptors) == [false, !receivesAll])
        #expect(datagrams.allSatisfy { ($0.credentials != nil) == withCredentials })
    }

    @Test func `a datagram's sender is reported on request, as far as it is known`() throws {
        // Sent before the receiver asks for credentials: the kernel does not know the process.
        #expect(try sender.send([0]))
        let datagrams = try receive(2, receivesCredentials: true) { _, datagram in
            if datagram.credentials?.processIdentifier == 0 { try #require(try sender.send([1])) }
        }
        let credentials = try #require(datagrams.last?.credentials)
        #expect(credentials.processIdentifier == getpid())
        #expect(credentials.userIdentifier == getuid() && credentials.groupIdentifier == getgid())
    }

    @Test func `too many descriptors, closed ones and other families are refused`() throws {
        let many = Array(repeating: FileDescriptor.standardInput, count: 254)
        expectErrno(.invalidArgument) { try sender.send([0], descriptors: many) }
        expectErrno(.badFileDescriptor) {
            try sender.send([0], descriptors: [FileDescriptor(rawValue: 1 << 20)])
        }
        expectErrno(.invalidArgument) {
            try silentSocket().send([0], to: .ipv4Loopback(port: 9), descriptors: [.standardInput])
        }
    }

    @Test func `a connection knows its peer's process`() throws {
        let unix = try SocketFixture(.descriptor)
        #expect(unix.connection.peerCredentials?.processIdentifier == getpid())
        #expect(unix.connection.peerCredentials?.userIdentifier == getuid())
        let tcp = try SocketFixture(.ipv4)
        #expect(tcp.connection.peerCredentials == nil)
        try tcp.openBoth()
        #expect(tcp.connection.peerCredentials == nil)
    }
}
