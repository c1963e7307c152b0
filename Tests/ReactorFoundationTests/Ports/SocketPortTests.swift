import Dispatch
import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct SocketPortTests {
    @Test func `a message arrives with its number and its components`() throws {
        let (port, mailbox) = try SocketPort.listening()
        #expect(port.remote.sendTexts("one", "", "three", number: 0xFFFF_FFFF))
        mailbox.wait(1)
        #expect(mailbox.texts == ["one,,three"])
        let message = try #require(mailbox.messages.first)
        #expect(message.msgid == 0xFFFF_FFFF)
        #expect(message.receivePort === port && message.sendPort == nil)
    }

    @Test func `a port can be a component`() throws {
        let (port, mailbox) = try SocketPort.listening()
        let other = try #require(SocketPort(remoteWithTCPPort: 4711, host: "::1"))
        let components = NSMutableArray(array: [other, NSData(data: Data([1]))])
        #expect(port.remote.send(before: .distantFuture, components: components, from: nil, reserved: 0))
        mailbox.wait(1)
        let arrived = try #require(mailbox.messages[0].components)
        #expect(arrived[0] as? SocketPort == other && arrived[1] as? NSData == NSData(data: Data([1])))
    }

    @Test func `messages of concurrent senders arrive whole, each sender's in order`() throws {
        let (port, mailbox) = try SocketPort.listening()
        let remote = port.remote
        DispatchQueue.global().async {
            DispatchQueue.concurrentPerform(iterations: 4) { sender in
                for index in 0..<50 {
                    remote.sendTexts(
                        String(repeating: "\(sender)", count: 1000), number: sender << 8 | index)
                }
            }
        }
        mailbox.wait(200)
        for sender in 0..<4 {
            let numbers = mailbox.messages.map { Int($0.msgid) }.filter { $0 >> 8 == sender }
            #expect(numbers == (0..<50).map { sender << 8 | $0 })
        }
        #expect(
            mailbox.messages.allSatisfy { $0.text == String(repeating: "\($0.msgid >> 8)", count: 1000) })
    }

    @Test(arguments: [true, false])
    func `a delegate that runs the loop, or adds its port again, is not called reentrantly`(addsPort: Bool)
        throws
    {
        let loop = RunLoop.current
        var (depth, peak) = (0, 0)
        let mailbox = Mailbox { message in
            depth += 1
            peak = max(peak, depth)
            if addsPort, let port = message.receivePort {
                loop.remove(port, forMode: .default)
                loop.add(port, forMode: .default)
            }
            for _ in 0..<3 { loop.run(mode: .default, before: Deadline.distantPast) }
            depth -= 1
        }
        let port = try SocketPort.listening(mailbox)
        loop.add(Port(), forMode: .default)
        for text in ["a", "b", "c"] { port.sendTexts(text) }
        mailbox.wait(3)
        #expect(mailbox.texts == ["a", "b", "c"] && peak == 1)
    }

    @Test func `a delegate that invalidates its port receives no further messages`() throws {
        let mailbox = Mailbox { $0.receivePort?.invalidate() }
        let port = try SocketPort.listening(mailbox)
        for text in ["a", "b", "c"] { port.sendTexts(text) }
        RunLoop.current.run()
        #expect(mailbox.texts == ["a"])
    }

    @Test func `a message without a delegate is dropped, and a later delegate receives the next`() throws {
        let port = try #require(SocketPort(tcpPort: 0))
        RunLoop.current.add(port, forMode: .default)
        port.sendTexts("first")
        RunLoop.current.run(mode: .default, before: Deadline.distantFuture)
        let mailbox = Mailbox()
        port.setDelegate(mailbox)
        port.sendTexts("second")
        mailbox.wait(1)
        #expect(mailbox.texts == ["second"])
    }

    @Test func `a Unix-domain port sends and receives`() throws {
        let folder = TemporaryFolder()
        let path = folder.path("socket")
        let address = Data(
            try SocketAddress(unixPath: FilePath(path)).withSockAddr {
                Array(UnsafeRawBufferPointer(start: $0, count: Int($1)))
            })
        let (type, mailbox) = (Int32(SOCK_STREAM.rawValue), Mailbox())
        let port = try #require(
            SocketPort(protocolFamily: PF_UNIX, socketType: type, protocol: 0, address: address))
        port.setDelegate(mailbox)
        RunLoop.current.add(port, forMode: .default)
        let remote = SocketPort(
            remoteWithProtocolFamily: PF_UNIX, socketType: type, protocol: 0, address: address)
        #expect(remote.sendTexts("local", from: port))
        mailbox.wait(1)
        #expect(mailbox.messages[0].sendPort == remote && remote.address == port.address)
        port.invalidate()
        #expect(access(path, F_OK) == -1)
    }

    @Test func `a port takes ownership of a listening socket`() throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        listen(listener, 8)
        let port = try #require(
            SocketPort(
                protocolFamily: PF_INET, socketType: Int32(SOCK_STREAM.rawValue), protocol: 6,
                socket: listener))
        let mailbox = Mailbox()
        port.setDelegate(mailbox)
        RunLoop.current.add(port, forMode: .default)
        #expect(port.remote.sendTexts("hello"))
        mailbox.wait(1)
        port.invalidate()
        #expect(port.socket == -1)
    }

    // MARK: Failures

    @Test func `an initializer that cannot listen returns nil, and an unreachable port does not send`() throws
    {
        let taken = try #require(SocketPort(tcpPort: 0))
        #expect(SocketPort(tcpPort: taken.tcpPort) == nil)
        let stream = Int32(SOCK_STREAM.rawValue)
        #expect(
            SocketPort(protocolFamily: PF_INET, socketType: stream, protocol: 6, address: Data([1]))
                == nil)
        #expect(
            SocketPort(
                protocolFamily: PF_INET, socketType: Int32(SOCK_DGRAM.rawValue), protocol: 17,
                address: taken.address) == nil)
        #expect(SocketPort(protocolFamily: PF_INET, socketType: stream, protocol: 6, socket: -1) == nil)
        #expect(SocketPort(remoteWithTCPPort: 1, host: "no such host.invalid") == nil)
        #expect(
            SocketPort(remoteWithTCPPort: 1, host: nil)?.address
                == SocketPort(remoteWithTCPPort: 1, host: "")?.address)
        let unreachable = SocketPort(
            remoteWithProtocolFamily: PF_INET, socketType: stream, protocol: 6, address: Data())
        #expect(!unreachable.sendTexts("x"))
        let (notListening, remote) = (try SocketPeer.bound(), taken.remote)
        #expect(!notListening.remote.sendTexts("x"))
        taken.invalidate()
        remote.invalidate()
        #expect(!remote.sendTexts("x") && !taken.sendTexts("x") && taken.socket == -1)
    }

    @Test func `an invalid component and a message that is too long are not sent`() throws {
        let port = try #require(SocketPort(tcpPort: 0))
        let strings = NSMutableArray(array: [NSString(string: "text")])
        #expect(!port.send(before: .distantFuture, components: strings, from: nil, reserved: 0))
        #expect(!port.send(before: .distantFuture, components: nil, from: Port(), reserved: 0))
        // Takes seconds without optimization.
        if Depth.isFull { #expect(!port.send(byteCount: SocketPort.longestMessage, before: .distantFuture)) }
    }
}
