import Dispatch
import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct PortConnectionTests {
    // MARK: Sending

    @Test func `ports of one address share a connection, which closes with the last port`() throws {
        let listener = try SocketPeer.listening()
        var ports = [listener.remote, listener.remote]
        #expect(ports[0] == ports[1] && ports[0].hash == ports[1].hash)
        #expect(ports[0].sendTexts("a") && ports[1].sendTexts("b"))
        let connection = try listener.accept()
        let size = 12 + 20 + 8 + 1
        #expect(connection.receive(2 * size).count == 2 * size)
        ports.removeFirst()
        #expect(ports[0].sendTexts("c"))
        #expect(connection.receive(size).count == size)
        ports[0].invalidate()
        #expect(connection.receive(1).isEmpty)
    }

    @Test func `sending reopens a connection that the receiver closed`() throws {
        let listener = try SocketPeer.listening()
        let port = listener.remote
        #expect(port.sendTexts("a"))
        do {
            let first = try listener.accept()
            #expect(first.receive(41).count == 41)
            first.shutDown()
            // All data has been read, so the end has arrived.
            #expect(port.sendTexts("b"))
        }
        #expect(try listener.accept().receive(41).count == 41)
    }

    @Test(arguments: [0.02, nil])
    func `sending to a receiver that does not read fails at the limit date, at once if it is past`(
        limit: TimeInterval?
    ) throws {
        let listener = try SocketPeer.listening()
        listener.narrow()
        let port = listener.remote
        #expect(port.sendTexts("connects") && port.sendTexts("needs no waiting", before: .distantPast))
        var begin = Date()
        repeat {
            begin = Date()
        } while port.send(
            byteCount: 1 << 18, before: limit.map { Date(timeIntervalSinceNow: $0) } ?? .distantPast)
        #expect(Date().timeIntervalSince(begin) >= (limit ?? 0) * 0.9)
        // A message was partly sent, so the next message uses a new connection.
        #expect(port.sendTexts("next"))
        let connections = try (0..<2).map { _ in try listener.accept() }
        #expect(connections[1].receive(44).count == 44)
    }

    // MARK: Receiving

    @Test(
        arguments: [
            [0xD0, 0xCF, 0x50, 0xC0, 0xFF, 0xFF, 0xFF, 0xFF],  // too long
            [0xD0, 0xCF, 0x50, 0xC0, 0, 0, 0, 15],  // too short
            Array("GET / HTTP/1.1\r\n\r\n".utf8),
            [0xD0, 0xCF, 0x50, 0xC0, 0, 0, 0, 16, 0, 0, 0, 0, 2, 1, 6, 200],  // oversized signature
            [0xD0, 0xCF, 0x50, 0xC0, 0, 0, 0, 17, 0, 0, 0, 0, 2, 1, 6, 1, 0],  // a one-byte address
        ] as [[UInt8]])
    func `invalid bytes close their connection and no other`(bytes: [UInt8]) throws {
        let (port, mailbox) = try SocketPort.listening()
        let remote = port.remote
        #expect(remote.sendTexts("before"))
        let client = try SocketPeer.connected(to: port.tcpPort)
        client.send(bytes)
        #expect(client.receive(1).isEmpty)
        #expect(remote.sendTexts("after"))
        mailbox.wait(2)
        #expect(mailbox.texts == ["before", "after"])
    }

    @Test func `a sender that closes within a message loses only that message`() throws {
        let (port, mailbox) = try SocketPort.listening()
        do {
            let sender = try SocketPeer.connected(to: port.tcpPort)
            sender.send(PortBytes.message("whole") + PortBytes.message("half").dropLast(2))
        }
        mailbox.wait(1)
        #expect(port.sendTexts("another"))
        mailbox.wait(2)
        #expect(mailbox.texts == ["whole", "another"])
    }

    @Test func `senders block when the receive queue is full, and every sent message arrives`() throws {
        let mailbox = Mailbox()
        let port = try #require(SocketPort(tcpPort: 0))
        port.setDelegate(mailbox)
        let remote = port.remote
        var sentCount = 0
        while remote.send(byteCount: 600_000, before: Date(timeIntervalSinceNow: 0.02)) { sentCount += 1 }
        #expect(sentCount > 0)
        // The message that failed was partly sent, so its connection is closed.
        RunLoop.current.add(port, forMode: .default)
        mailbox.wait(sentCount)
        #expect(remote.sendTexts("last"))
        mailbox.wait(sentCount + 1)
        #expect(mailbox.messages.last?.text == "last")
    }

    @Test(arguments: [true, false])
    func `invalidating or releasing a port closes its connections`(isReleased: Bool) throws {
        var port: SocketPort? = SocketPort(tcpPort: 0)
        let connection = try SocketPeer.connected(to: try #require(port).tcpPort)
        connection.send(PortBytes.message("unread"))
        if isReleased { port = nil } else { port?.invalidate() }
        #expect(connection.receive(1).isEmpty)
    }

    @Test func `a port may be released while messages arrive`() throws {
        for _ in 0..<Depth.of(full: 100, quick: 10) {
            let port = try #require(SocketPort(tcpPort: 0))
            RunLoop.current.add(port, forMode: .default)
            let connection = try SocketPeer.connected(to: port.tcpPort)
            for _ in 0..<5 { connection.send(PortBytes.message("early")) }
            RunLoop.current.remove(port, forMode: .default)
        }
    }

    // MARK: Foundation's ports

    /// In a process of its own, as Foundation's port never closes its sockets.
    @Test func `a Foundation socket port can send to a Reactor port`() async {
        await #expect(processExitsWith: .success) {
            let (port, mailbox) = try SocketPort.listening()
            let created = Foundation.SocketPort(remoteWithTCPPort: port.tcpPort, host: "127.0.0.1")
            let foundationPort = try #require(created)
            let components = NSMutableArray(array: [NSData(data: Data("from Foundation".utf8))])
            #expect(
                foundationPort.send(
                    before: Date(timeIntervalSinceNow: 60), msgid: 7, components: components, from: nil,
                    reserved: 0))
            mailbox.wait(1)
            #expect(mailbox.texts == ["from Foundation"] && mailbox.messages[0].msgid == 7)
        }
    }
}
