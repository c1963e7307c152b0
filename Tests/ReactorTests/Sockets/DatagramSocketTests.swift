import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct DatagramSocketTests {
    @Test(arguments: DatagramKind.allCases)
    func `a datagram has its sender's address, which can be replied to`(kind: DatagramKind) async throws {
        try await onItsOwnThread {
            let (asked, answered) = (Inflow(), Inflow())
            let server = try asked.socket(at: kind.freshAddress()) { socket in
                guard let sender = asked.datagrams.last?.sender else { return }
                #expect(throws: Never.self) { try #require(try socket.send("pong", to: sender)) }
            }
            let client = try DatagramSocket(
                connectedTo: try server.localAddress, boundTo: kind.freshAddress(),
                receive: { _, bytes, datagram in answered.note(bytes, datagram) })
            try RunLoop.current.add(client, forMode: .default)
            #expect(try client.send("ping"))
            answered.wait(for: 1)
            #expect(asked.texts == ["ping"])
            #expect(asked.datagrams.first?.sender == (try client.localAddress))
            #expect(answered.texts == ["pong"])
            #expect(answered.datagrams.first?.sender == (try server.localAddress))
            #expect(try client.peerAddress == server.localAddress)
            client.close()
            server.close()
        }
    }

    @Test func `datagrams arrive whole and in order, empty ones included`() throws {
        let inflow = Inflow()
        let server = try inflow.socket(at: .ipv4Loopback(port: 0))
        let client = try sender(to: try server.localAddress)
        let longest = String(repeating: "x", count: 65_507)
        for text in ["one", "", longest, "four"] { #expect(try client.send(text)) }
        inflow.wait(for: 4)
        #expect(inflow.texts == ["one", "", longest, "four"])
        #expect(inflow.datagrams.map(\.byteCount) == [3, 0, 65_507, 4])
        #expect(inflow.datagrams.allSatisfy { !$0.isTruncated })
        server.close()
    }

    @Test(arguments: [DatagramKind.ipv4, .path])
    func `a datagram longer than the limit is truncated, and states its length`(kind: DatagramKind)
        async throws
    {
        try await onItsOwnThread {
            let inflow = Inflow()
            var options = DatagramSocket.Options()
            options.datagramLimit = 4
            let server = try inflow.socket(at: kind.freshAddress(), options)
            let client = try sender(to: try server.localAddress)
            for text in ["1234", "12345678", "abc"] { #expect(try client.send(text)) }
            inflow.wait(for: 3)
            #expect(inflow.texts == ["1234", "1234", "abc"])
            #expect(inflow.datagrams.map(\.byteCount) == [4, 8, 3])
            #expect(inflow.datagrams.map(\.isTruncated) == [false, true, false])
            server.close()
        }
    }

    @Test func `a pass delivers up to sixteen datagrams`() throws {
        let inflow = Inflow()
        let server = try inflow.socket(at: .ipv4Loopback(port: 0))
        let client = try sender(to: try server.localAddress)
        for number in 0..<40 { #expect(try client.send("\(number)")) }
        var counts: [Int] = []
        for _ in 0..<4 {
            RunLoop.current.poll()
            counts.append(inflow.texts.count)
        }
        #expect(counts == [16, 32, 40, 40])
        #expect(inflow.texts == (0..<40).map { "\($0)" })
        server.close()
    }

    @Test func `a limit above the buffer's size receives one datagram at a time`() throws {
        let inflow = Inflow()
        var options = DatagramSocket.Options()
        options.datagramLimit = 3 << 20
        let server = try inflow.socket(at: .ipv4Loopback(port: 0), options)
        let client = try sender(to: try server.localAddress)
        for text in ["a", "b"] { #expect(try client.send(text)) }
        RunLoop.current.poll()
        #expect(inflow.texts == ["a"])
        RunLoop.current.poll()
        #expect(inflow.texts == ["a", "b"])
        server.close()
    }

    @Test func `a sender without a name is nil`() throws {
        let inflow = Inflow()
        let server = try inflow.socket(at: DatagramKind.path.freshAddress())
        #expect(try sender(to: try server.localAddress).send("hello"))
        inflow.wait(for: 1)
        #expect(inflow.datagrams.first?.sender == nil)
        server.close()
    }

    @Test func `a connected socket receives from its peer only`() throws {
        let inflow = Inflow()
        let (peer, stranger) = (try inflow.silent(), try inflow.silent())
        let socket = try DatagramSocket(connectedTo: try peer.localAddress) { _, bytes, datagram in
            inflow.note(bytes, datagram)
        }
        try RunLoop.current.add(socket, forMode: .default)
        #expect(try stranger.send("stranger", to: try socket.localAddress))
        #expect(try peer.send("peer", to: try socket.localAddress))
        inflow.wait(for: 1)
        #expect(inflow.texts == ["peer"])
        socket.close()
    }

    @Test func `datagrams wait for a mode that the socket is in`() throws {
        let loop = RunLoop.current
        let inflow = Inflow()
        let server = try inflow.socket(at: .ipv4Loopback(port: 0))
        try loop.add(server, forMode: .custom)
        loop.remove(server, forMode: .default)
        #expect(try sender(to: try server.localAddress).send("hello"))
        #expect(loop.poll() == .finished)
        #expect(inflow.texts.isEmpty)
        loop.poll(.custom)
        #expect(inflow.texts == ["hello"])
        #expect(loop.contains(server, forMode: .custom))
        #expect(!loop.contains(server, forMode: .default))
        server.close()
    }

    @Test func `a socket of a pair can be adopted`() throws {
        let inflow = Inflow()
        let (socket, other) = try DatagramSocket.pair { _, bytes, datagram in inflow.note(bytes, datagram)
        }
        defer { try? other.close() }
        try RunLoop.current.add(socket, forMode: .default)
        try other.writeAll("hello".utf8)
        inflow.wait(for: 1)
        #expect(inflow.texts == ["hello"])
        socket.close()
    }

    @Test func `a descriptor that is not a datagram socket is refused and closed`() throws {
        let (reader, writer) = try Channel.socketPair.open()
        defer { try? writer.close() }
        #expect(throws: Errno(rawValue: EPROTOTYPE)) {
            try DatagramSocket(descriptor: reader) { _, _, _ in }
        }
        #expect(writer.readOne() == nil)
        let pipe = try FileDescriptor.pipe()
        defer { try? pipe.readEnd.close() }
        #expect(throws: Errno.notSocket) { try DatagramSocket(descriptor: pipe.writeEnd) { _, _, _ in } }
        #expect(pipe.readEnd.readOne() == nil)
        #expect(throws: Errno.badFileDescriptor) {
            try DatagramSocket(descriptor: FileDescriptor(rawValue: -1)) { _, _, _ in }
        }
    }
}

extension Inflow {
    /// A UDP socket in no loop.
    fileprivate func silent() throws -> DatagramSocket {
        try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in }
    }
}
