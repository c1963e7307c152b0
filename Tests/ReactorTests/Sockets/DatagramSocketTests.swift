import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Receiving and sending, full buffers, and errors of earlier datagrams.
@Suite(.runLoop) struct DatagramSocketTests {
    private let loop = RunLoop.current
    private let inflow = Inflow()

    @Test(arguments: DatagramKind.allCases)
    func `a datagram has its sender's address, which can be replied to`(kind: DatagramKind) throws {
        let answered = Inflow()
        let server = try inflow.socket(at: kind.freshAddress()) { [inflow] socket in
            guard let sender = inflow.datagrams.last?.sender else { return }
            #expect(throws: Never.self) { try #require(try socket.send("pong", to: sender)) }
        }
        let client = try answered.socket(connectedTo: server.localAddress, boundTo: kind.freshAddress())
        #expect(try client.send("ping"))
        answered.wait(for: 1)
        #expect(inflow.texts == ["ping"] && answered.texts == ["pong"])
        #expect(inflow.datagrams.first?.sender == client.localAddress)
        #expect(answered.datagrams.first?.sender == server.localAddress)
        #expect(client.peerAddress == server.localAddress)
        client.close()
        server.close()
    }

    @Test func `binding replaces neither a file nor the socket file of a closed socket`()
        throws
    {
        let folder = TemporaryFolder()
        let file = try folder.file([1], name: "file")
        // The file of a socket that is closed.
        let abandoned = try SocketAddress(unixPath: FilePath(folder.path("abandoned")))
        try SocketPeer(family: AF_UNIX, SOCK_DGRAM).bind(to: abandoned)
        for address in [try SocketAddress(unixPath: file), abandoned] {
            let error = #expect(throws: IOError.self) { try inflow.socket(at: address) }
            #expect(error?.errno == .addressInUse)
        }
        #expect(content(of: file.string) == [1])
        #expect(Set(folder.names) == ["file", "abandoned"])
    }

    @Test func `datagrams arrive whole and in order, even if the handler runs the loop`() throws {
        let server = try inflow.socket { [loop] _ in for _ in 0..<3 { loop.poll() } }
        let client = try sender(to: server.localAddress)
        let longest = String(repeating: "x", count: 65_507)
        for text in ["one", "", longest, "four"] { #expect(try client.send(text)) }
        inflow.wait(for: 4)
        #expect(inflow.texts == ["one", "", longest, "four"])
        #expect(inflow.datagrams.map(\.byteCount) == [3, 0, 65_507, 4])
        #expect(inflow.datagrams.allSatisfy { !$0.isTruncated })
        server.close()
    }

    @Test(arguments: [DatagramKind.ipv4, .path])
    func `a datagram longer than the limit is truncated, and states its length`(kind: DatagramKind) throws {
        var options = DatagramSocket.Options()
        options.datagramLimit = 4
        let server = try inflow.socket(at: kind.freshAddress(), options)
        let client = try sender(to: server.localAddress)
        for text in ["1234", "12345678", "abc"] { #expect(try client.send(text)) }
        inflow.wait(for: 3)
        #expect(inflow.texts == ["1234", "1234", "abc"])
        #expect(inflow.datagrams.map(\.byteCount) == [4, 8, 3])
        #expect(inflow.datagrams.map(\.isTruncated) == [false, true, false])
        // A Unix-domain client has no name.
        #expect((inflow.datagrams.last?.sender == nil) == (kind == .path))
        server.close()
    }

    @Test(arguments: [(nil, 16), (3 << 20, 1)])
    func `a pass delivers up to sixteen datagrams, or one if it may be large`(limit: Int?, most: Int) throws {
        var options = DatagramSocket.Options()
        if let limit { options.datagramLimit = limit }
        let server = try inflow.socket(at: .ipv4Loopback(port: 0), options)
        let client = try sender(to: server.localAddress)
        for number in 0..<40 { #expect(try client.send("\(number)")) }
        for pass in 1...4 {
            loop.poll()
            #expect(inflow.texts == (0..<min(40, pass * most)).map { "\($0)" })
        }
        server.close()
    }

    // MARK: Adopted descriptors

    @Test func `a socket of a pair can be adopted, and becomes close-on-exec`() throws {
        let (socket, other) = try inflow.pair()
        defer { try? other.close() }
        #expect(fcntl(try #require(socket.descriptor).rawValue, F_GETFD) & FD_CLOEXEC != 0)
        try loop.add(socket, forMode: .default)
        try other.writeAll("hello".utf8)
        inflow.wait(for: 1)
        #expect(inflow.texts == ["hello"])
        socket.close()
    }

    @Test func `a descriptor that is not a datagram socket is refused and closed`() throws {
        let pipe = try FileDescriptor.pipe()
        let stream = try Channel.socketPair.open()
        let cases = [
            (stream.reader, stream.writer, Errno(rawValue: EPROTOTYPE)),
            (pipe.writeEnd, pipe.readEnd, .notSocket),
        ]
        for (descriptor, other, error) in cases {
            expectErrno(error) { try DatagramSocket(descriptor: descriptor) { _, _, _ in } }
            #expect(other.readOne() == nil)
            try other.close()
        }
        expectErrno(.badFileDescriptor) {
            try DatagramSocket(descriptor: FileDescriptor(rawValue: -1)) { _, _, _ in }
        }
    }

    // MARK: Full buffers

    @Test(arguments: [true, false])
    func `a send without room delivers hasSpaceAvailable once`(joinsLoopFirst: Bool) throws {
        let (socket, other) = try inflow.pair()
        defer { try? other.close() }
        if joinsLoopFirst { try loop.add(socket, forMode: .default) }
        var sent = 0
        while try socket.send("x") { sent += 1 }
        #expect(try sent > 0 && !socket.send("x"))
        if !joinsLoopFirst { try loop.add(socket, forMode: .default) }
        loop.poll()
        #expect(inflow.events.isEmpty)
        for _ in 0..<sent { _ = other.readOne() }
        loop.serve { !inflow.events.isEmpty }
        loop.poll()
        #expect(inflow.events == [.hasSpaceAvailable])
        #expect(try socket.send("x"))
        socket.close()
    }

    @Test func `a full socket still receives, and may be closed by its event handler`() throws {
        let (socket, other) = try inflow.pair { $0.close() }
        defer { try? other.close() }
        try loop.add(socket, forMode: .default)
        while try socket.send("x") {}
        try other.writeAll("in".utf8)
        inflow.wait(for: 1)
        #expect(inflow.events.isEmpty)
        while inflow.events.isEmpty {
            _ = other.readOne()
            loop.poll()
        }
        #expect(inflow.events == [.hasSpaceAvailable] && !socket.isValid)
    }

    @Test func `a socket that its receiver closes does not report space`() throws {
        let (descriptor, other) = try Channel.datagrams.open()
        defer { try? other.close() }
        let socket = try DatagramSocket(descriptor: descriptor) { socket, _, _ in
            socket.close()
        } events: { [inflow] in
            inflow.events.append($1)
        }
        try loop.add(socket, forMode: .default)
        var sent = 0
        while try socket.send("x") { sent += 1 }
        for _ in 0..<sent { _ = other.readOne() }
        try other.writeAll("in".utf8)
        loop.serve { !socket.isValid }
        #expect(inflow.events.isEmpty)
    }

    // MARK: Errors

    /// A socket that is connected to itself, so the kernel refuses datagrams from others.
    private func deafSocket() throws -> (socket: DatagramSocket, address: SocketAddress) {
        let deaf = try silentSocket()
        try connect(deaf, to: deaf.localAddress)
        return (deaf, deaf.localAddress)
    }

    private func connect(_ socket: DatagramSocket, to address: SocketAddress) throws {
        let number = try #require(socket.descriptor).rawValue
        try SystemCall.make { address.withSockAddr { Glibc.connect(number, $0, $1) } }
    }

    @Test func `a refused datagram delivers an error, and the socket continues`() throws {
        let (deaf, address) = try deafSocket()
        let socket = try inflow.socket(connectedTo: address)
        #expect(try socket.send("x"))
        loop.serve { !inflow.events.isEmpty }
        #expect(inflow.events == [.errorOccurred(IOError(.receive, "\(address)", .connectionRefused))])
        #expect(socket.isValid)
        // Now it hears this socket alone.
        try connect(deaf, to: socket.localAddress)
        #expect(try deaf.send("hello"))
        inflow.wait(for: 1)
        #expect(inflow.texts == ["hello"] && inflow.events.count == 1)
        socket.close()
    }

    @Test func `a send may throw the error of an earlier datagram without sending`() throws {
        let (deaf, address) = try deafSocket()
        let socket = try sender(to: address)
        #expect(try socket.send("x"))
        var request = pollfd(fd: try #require(socket.descriptor).rawValue, events: Int16(POLLIN), revents: 0)
        #expect(poll(&request, 1, -1) == 1)
        expectErrno(.connectionRefused) { try socket.send("y") }
        #expect(try socket.send("z"))
        deaf.close()  // not before, because another test could then receive at its port
    }

    @Test func `a pair whose other end is closed delivers nothing, and sending fails`() throws {
        let (socket, other) = try inflow.pair()
        try loop.add(socket, forMode: .default)
        try other.close()
        #expect(loop.passesInAWhile() < 10 && inflow.events.isEmpty)
        // A process that another test is just starting may hold the other end a moment longer.
        var error: IOError?
        while error == nil { do { _ = try socket.send("x") } catch let failure { error = failure } }
        #expect(error?.errno == .connectionRefused)
        #expect(loop.passesInAWhile() < 10)
        socket.close()
    }

    @Test func `sending without an address, or too many bytes, throws`() throws {
        let socket = try silentSocket()
        expectErrno(.addressRequired) { try socket.send("x") }
        expectErrno(.messageTooLong) {
            try socket.send([UInt8](repeating: 0, count: 65_508), to: socket.localAddress)
        }
        #expect(socket.peerAddress == nil)
        expectErrno(.socketNotConnected) { try silentSocket(at: .unixUnnamed).send("x") }
        expectErrno(.noSuchFileOrDirectory) { try sender(to: DatagramKind.path.freshAddress()) }
    }

    @Test func `the methods of a closed socket throw`() throws {
        let socket = try silentSocket()
        let address = socket.localAddress
        socket.close()
        #expect(!socket.isValid)
        let calls: [() throws -> Void] = [
            { _ = try socket.send("x", to: address) }, { _ = try socket.send("x") },
            { try socket.setMulticastLoop(true) },
            { try socket.join(.ipv4(0xefff_0001, port: 0)) },
        ]
        for call in calls { expectErrno(.badFileDescriptor, call) }
        #expect(socket.peerAddress == nil && socket.descriptor == nil)
        try loop.add(socket, forMode: .default)
        #expect(!loop.contains(socket, forMode: .default))
        #expect(loop.poll() == .finished)
    }
}
