import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

#if DEBUG
@testable import ReactorFoundation
#else
import ReactorFoundation
#endif

@Suite(.runLoop) struct PortLimitTests {
    // MARK: Memory

    // In a process of its own: the memory of other tests does not count.
    @Test func `peers that stop within long messages take little memory and delay no other message`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let ((port, mailbox), before) = (try SocketPort.listening(), try peakResidentSize())
                let peers = try (0..<60).map { _ in try SocketPeer.connected(to: port.tcpPort) }
                let part = [UInt8](repeating: 0, count: 1 << 20)
                for peer in peers {
                    peer.narrow()
                    peer.send([0xD0, 0xCF, 0x50, 0xC0, 1, 0, 0, 0])
                }
                for round in 1...30 {
                    for peer in peers { peer.send(part, flags: CInt(MSG_DONTWAIT)) }
                    #expect(port.sendTexts("whole"))
                    mailbox.wait(round)
                }
                #expect(try peakResidentSize() - before < 50 << 20)
                port.invalidate()
            }
        }
    }

    // MARK: Components

    @Test func `a message of too many components is not sent, and closes the connection that it arrives on`()
        throws
    {
        let (port, mailbox) = try SocketPort.listening()
        let most = SocketPort.maximumComponentCount
        let data = NSMutableArray(array: [NSData](repeating: NSData(), count: most))
        let sentMost = port.send(before: .distantFuture, components: data, from: nil, reserved: 0)
        data.add(NSData())
        let sentMore = port.send(before: .distantFuture, components: data, from: nil, reserved: 0)
        #expect(sentMost && !sentMore)
        let peer = try SocketPeer.connected(to: port.tcpPort)
        peer.send(PortBytes.message(components: [[UInt8]](repeating: [], count: most + 1)))
        #expect(peer.receive(1).isEmpty)
        mailbox.wait(1)
        #expect(mailbox.messages.count == 1 && mailbox.messages[0].components?.count == most)
    }

    // MARK: Replies

    @Test func `a message over TCP that names a Unix-domain socket has no reply port`() throws {
        let ((port, mailbox), path) = (try SocketPort.listening(), Array("/run/service".utf8))
        let signature: [UInt8] = [1, 1, 0, UInt8(path.count + 3), 1, 0] + path + [0]
        try SocketPeer.connected(to: port.tcpPort).send(PortBytes.message("text", from: signature))
        mailbox.wait(1)
        #expect(mailbox.messages[0].text == "text" && mailbox.messages[0].sendPort == nil)
    }

    // MARK: Room

    @Test func `messages of many senders arrive though no two of them have room at once`() throws {
        let (port, mailbox) = try SocketPort.listening()
        let message = PortBytes.message(components: [[UInt8](repeating: 7, count: 700_000)])
        let long = PortBytes.message(components: [[UInt8](repeating: 7, count: 3_000_000)])
        let peers = try (0..<8).map { _ in try SocketPeer.connected(to: port.tcpPort) }
        // Every message has begun before any other ends.
        for peer in peers { peer.send(Array(message.prefix(10))) }
        let threads = try peers.enumerated().map { index, peer in
            try JoinableThread {
                peer.send(message.dropFirst(10) + (index % 2 == 0 ? long : message))
            }
        }
        mailbox.wait(16)
        let lengths = mailbox.messages.map { ($0.components?.first as? NSData)?.length ?? 0 }
        #expect(
            lengths.sorted() == Array(repeating: 700_000, count: 12)
                + Array(repeating: 3_000_000, count: 4))
        for thread in threads { thread.join() }
    }
}

#if DEBUG

extension PortLimitTests {
    @Test func `messages that wait take no more bytes than the limit`() {
        var room = PortRoom(limit: 1_000)
        room.take(600)
        #expect(room.fits(400) && !room.fits(401))
        room.release(600)
        #expect(room.fits(401))
    }

    @Test func `a connection that closes within a message leaves its room to others`() throws {
        let receiver = try PortReceiver(at: .ipv4Loopback(port: 0))
        let arrived = Countdown(1)
        receiver.setMessageHandler { arrived.count() }
        let message = PortBytes.message(components: [[UInt8](repeating: 7, count: 900_000)])
        let (first, second) = (
            try SocketPeer(connectedTo: receiver.address), try SocketPeer(connectedTo: receiver.address)
        )
        first.send(Array(message.prefix(10)))
        first.close()
        let sender = try JoinableThread { second.send(message) }
        arrived.wait()
        receiver.close()
        sender.join()
    }

    @Test func `a queue that is never empty keeps no message that was taken`() async {
        await #expect(processExitsWith: .success) {
            let (count, size) = (400, 1 << 20)
            let bytes = PortBytes.message(components: [[UInt8](repeating: 0, count: size)])
            let (queue, before) = (PortQueue(byteLimit: .max), try peakResidentSize())
            for number in 0...count {
                var copy = bytes
                copy[11] = UInt8(truncatingIfNeeded: number)
                queue.append(try ReceivedMessage(copy, from: .unixUnnamed))
                if number > 0 { #expect(queue.take().message?.frame.number == UInt32((number - 1) & 255)) }
            }
            // A sanitizer keeps a quarter of a gigabyte that was freed.
            #expect(try peakResidentSize() - before < count * size / 100 * 85)
        }
    }

    private static let impatient = PortLimits(messageTimeout: .milliseconds(20))

    @Test(arguments: [[], Array(PortBytes.message("text").prefix(3)), PortBytes.message("text").dropLast()])
    func `a connection on which no message ends is closed`(bytes: [UInt8]) throws {
        let receiver = try PortReceiver(at: .ipv4Loopback(port: 0), limits: Self.impatient)
        let (begin, peer) = (Deadline.now, try SocketPeer(connectedTo: receiver.address))
        peer.send(bytes)
        #expect(peer.receive(1).isEmpty && begin.duration(to: .now) >= .milliseconds(19))
    }

    @Test func `a connection is closed though the bytes of its message never stop`() throws {
        let receiver = try PortReceiver(at: .ipv4Loopback(port: 0), limits: Self.impatient)
        let peer = try SocketPeer(connectedTo: receiver.address)
        var isOpen = peer.send([0xD0, 0xCF, 0x50, 0xC0, 0, 0x0F, 0, 0])
        for _ in 0..<900_000 where isOpen { isOpen = peer.send([0]) }
        #expect(!isOpen)
    }

    @Test func `a port with as many connections as allowed closes the one that has been idle longest`() throws
    {
        let limits = PortLimits(connectionCount: 3)
        let receiver = try PortReceiver(at: .ipv4Loopback(port: 0), limits: limits)
        let arrived = DispatchSemaphore(value: 0)
        receiver.setMessageHandler { arrived.signal() }
        let busy = try SocketPeer(connectedTo: receiver.address)
        busy.send(PortBytes.message("first").dropLast())
        let peers = try (0..<6).map { _ in
            let peer = try SocketPeer(connectedTo: receiver.address)
            peer.send(PortBytes.message("text"))
            arrived.wait()
            return peer
        }
        for peer in peers.prefix(4) { #expect(peer.receive(1).isEmpty) }
        busy.send([UInt8(ascii: "t")])
        peers[5].send(PortBytes.message("text"))
        arrived.wait()
        arrived.wait()
    }
}

#endif
