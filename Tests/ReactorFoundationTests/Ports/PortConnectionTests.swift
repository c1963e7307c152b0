import Dispatch
import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import Testing

@Suite struct PortConnectionTests {
    // MARK: Sending

    @Test func `ports of one address share a connection, which ends with the last of them`() async throws {
        try await onItsOwnThread {
            let listener = try SocketPeer.listening()
            var ports = [listener.remote, listener.remote]
            #expect(ports[0] == ports[1] && ports[0].hash == ports[1].hash)
            #expect(ports[0].say("a") && ports[1].say("b"))
            let connection = try listener.accept()
            let size = 12 + 20 + 8 + 1
            #expect(connection.receive(2 * size).count == 2 * size)
            ports.removeFirst()
            #expect(ports[0].say("c"))
            #expect(connection.receive(size).count == size)
            ports[0].invalidate()
            #expect(connection.receive(1).isEmpty)
        }
    }

    @Test func `a connection that the receiver has closed is made anew`() async throws {
        try await onItsOwnThread {
            let listener = try SocketPeer.listening()
            let port = listener.remote
            #expect(port.say("a"))
            do {
                let first = try listener.accept()
                #expect(first.receive(41).count == 41)
                first.shutDown()
                // Nothing is left to read but the end: so it has arrived.
                #expect(port.say("b"))
            }
            #expect(try listener.accept().receive(41).count == 41)
        }
    }

    @Test func `a receiver that does not read is waited for to the limit, and no longer`() async throws {
        try await onItsOwnThread {
            let listener = try SocketPeer.listening()
            let port = listener.remote
            let patience = 0.05
            var begin = Date()
            repeat { begin = Date() } while port.send(4 << 20, before: Date(timeIntervalSinceNow: patience))
            #expect(Date().timeIntervalSince(begin) >= patience * 0.9)
            // A message was half sent: another connection takes the next.
            #expect(port.say("next"))
            let (lost, next) = (try listener.accept(), try listener.accept())
            #expect(next.receive(44).count == 44)
            _ = lost
        }
    }

    @Test func `with a limit that has passed a message is sent if nothing has to be waited for`() async throws
    {
        try await onItsOwnThread {
            let listener = try SocketPeer.listening()
            let port = listener.remote
            #expect(port.say("a"))
            #expect(port.say("b", before: .distantPast))
            while port.send(1 << 20, before: .distantPast) {}
        }
    }

    // MARK: Receiving

    @Test(
        arguments: [
            [0xD0, 0xCF, 0x50, 0xC0, 0xFF, 0xFF, 0xFF, 0xFF],  // too long
            [0xD0, 0xCF, 0x50, 0xC0, 0, 0, 0, 15],  // too short
            Array("GET / HTTP/1.1\r\n\r\n".utf8),
            [0xD0, 0xCF, 0x50, 0xC0, 0, 0, 0, 16, 0, 0, 0, 0, 2, 1, 6, 200],  // a signature beyond the end
            [0xD0, 0xCF, 0x50, 0xC0, 0, 0, 0, 17, 0, 0, 0, 0, 2, 1, 6, 1, 0],  // an address of one byte
        ] as [[UInt8]])
    func `garbage ends the connection that it comes on, and no other`(garbage: [UInt8]) async throws {
        try await onItsOwnThread {
            let mailbox = Mailbox()
            let port = try SocketPort.listening(mailbox)
            let remote = port.remote
            #expect(remote.say("before"))
            let stranger = try SocketPeer.connected(to: port.number)
            stranger.send(garbage)
            #expect(stranger.receive(1).isEmpty)
            #expect(remote.say("after"))
            mailbox.wait(2)
            #expect(mailbox.texts == ["before", "after"])
            port.invalidate()
        }
    }

    @Test func `a sender that ends in the middle of a message loses that one alone`() async throws {
        try await onItsOwnThread {
            let mailbox = Mailbox()
            let port = try SocketPort.listening(mailbox)
            do {
                let sender = try SocketPeer.connected(to: port.number)
                sender.send(PortBytes.message("whole") + PortBytes.message("half").dropLast(2))
            }
            mailbox.wait(1)
            #expect(port.say("another"))
            mailbox.wait(2)
            #expect(mailbox.texts == ["whole", "another"])
            port.invalidate()
        }
    }

    @Test func `what nobody takes is kept to a limit, senders wait, and all of it arrives in the end`()
        async throws
    {
        try await onItsOwnThread {
            let mailbox = Mailbox()
            let port = try #require(SocketPort(tcpPort: 0))
            port.setDelegate(mailbox)
            let remote = port.remote
            var sentCount = 0
            while remote.send(600_000, before: Date(timeIntervalSinceNow: 0.02)) { sentCount += 1 }
            #expect(sentCount > 0)
            // The one that did not go was half sent: its connection has ended.
            RunLoop.current.add(port, forMode: .default)
            mailbox.wait(sentCount)
            #expect(remote.say("last"))
            mailbox.wait(sentCount + 1)
            #expect(mailbox.messages.last?.text == "last")
            port.invalidate()
        }
    }

    @Test func `the connections of a port end with it`() async throws {
        try await onItsOwnThread {
            let port = try #require(SocketPort(tcpPort: 0))
            let connection = try SocketPeer.connected(to: port.number)
            connection.send(PortBytes.message("unread"))
            port.invalidate()
            #expect(connection.receive(1).isEmpty)
        }
    }

    @Test func `a port that is let go of closes its sockets`() async throws {
        try await onItsOwnThread {
            var port: SocketPort? = SocketPort(tcpPort: 0)
            let connection = try SocketPeer.connected(to: try #require(port).number)
            port = nil
            #expect(connection.receive(1).isEmpty)
        }
    }

    @Test func `a port may be let go of while messages come in`() async throws {
        try await onItsOwnThread {
            for _ in 0..<100 {
                let port = try #require(SocketPort(tcpPort: 0))
                RunLoop.current.add(port, forMode: .default)
                let connection = try SocketPeer.connected(to: port.number)
                for _ in 0..<5 { connection.send(PortBytes.message("early")) }
                RunLoop.current.remove(port, forMode: .default)
            }
        }
    }

    // MARK: With Foundation's

    @Test func `Foundation's socket ports send to these`() async throws {
        try await onItsOwnThread {
            let mailbox = Mailbox()
            let port = try SocketPort.listening(mailbox)
            let found = Foundation.SocketPort(remoteWithTCPPort: port.number, host: "127.0.0.1")
            let theirs = try #require(found)
            let components = NSMutableArray(array: [NSData(data: Data("from Foundation".utf8))])
            #expect(
                theirs.send(
                    before: Date(timeIntervalSinceNow: 60), msgid: 7, components: components, from: nil,
                    reserved: 0))
            mailbox.wait(1)
            #expect(mailbox.texts == ["from Foundation"] && mailbox.messages[0].msgid == 7)
            port.invalidate()
        }
    }

    @Test func `these send to Foundation's socket ports`() async throws {
        try await onItsOwnThread {
            let mailbox = TheirMailbox()
            let found = Foundation.SocketPort(tcpPort: 0)
            let theirs = try #require(found)
            theirs.setDelegate(mailbox)
            let loop = Foundation.RunLoop.current
            loop.add(theirs, forMode: .default)
            let remote = SocketPort(
                remoteWithProtocolFamily: theirs.protocolFamily, socketType: theirs.socketType,
                protocol: theirs.protocol, address: theirs.address)
            #expect(remote.say("to Foundation"))
            while mailbox.texts.isEmpty, loop.run(mode: .default, before: Date.distantFuture) {}
            #expect(mailbox.texts == ["to Foundation"])
            loop.remove(theirs, forMode: .default)  // Foundation crashes when one ends that is in a loop
        }
    }
}

/// What one of Foundation's ports is handed.
private final class TheirMailbox: NSObject, Foundation.PortDelegate {
    private(set) var texts: [String] = []

    func handle(_ message: Foundation.PortMessage) {
        let bytes = (message.components ?? []).compactMap { ($0 as? NSData).map { $0 as Data } }
        texts += bytes.map { String(decoding: $0, as: UTF8.self) }
    }
}

/// Messages in bytes, written down once more.
enum PortBytes {
    /// A message with one component, from nobody.
    static func message(_ text: String) -> [UInt8] {
        let signature: [UInt8] = [2, 1, 6, 16, 16, 2] + [UInt8](repeating: 0, count: 14)
        let body =
            [0, 0, 0, 0] + signature + [0, 0, 0, 1, 0, 0, 0, UInt8(text.utf8.count)] + Array(text.utf8)
        return [0xD0, 0xCF, 0x50, 0xC0, 0, 0, 0, UInt8(body.count + 8)] + body
    }
}
