import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// Accepts a connection, and sends its first five bytes back in reverse order.
private func withReversingServer(_ body: (Int) -> Void) throws {
    let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
    let thread = try JoinableThread {
        if let peer = try? listener.accept() { peer.send(peer.receive(5).reversed()) }
    }
    body(Int(try listener.localAddress.port ?? 0))
    thread.join()
}

@Suite(.runLoop) struct PortedCodeTests {
    private func run(_ client: ChatClient) {
        while !client.isOver, RunLoop.current.run(mode: .default, before: .distantFuture) {}
    }

    @Test(arguments: [true, false])
    func `a Core Foundation client on a queue exchanges data, and fails if it requires SSL 3`(isPlain: Bool)
        throws
    {
        try withReversingServer { port in
            let (client, outcome) = (QueueClient(), Answer<(Data, Int?)>())
            client.onEnd = { data, error in outcome.give((data, (error as NSError?)?.code)) }
            let level = [kCFStreamSSLLevel as NSString: kCFStreamSocketSecurityLevelSSLv3 as NSString]
            client.connect(host: "127.0.0.1", port: port, settings: isPlain ? [:] : level)
            #expect(client.write("hello".data(using: .utf8)!) == isPlain)
            let (data, code) = outcome.wait()
            #expect(data == (isPlain ? "olleh" : "").data(using: .utf8) && (code == nil) == isPlain)
            if !isPlain { _ = try? SocketPeer(connectedTo: .ipv4Loopback(port: UInt16(port))) }
        }
    }

    @Test func `a Cocoa chat client exchanges data with a server, and its timer fires`() throws {
        try withReversingServer { port in
            let client = ChatClient()
            client.connect(host: "127.0.0.1", port: port)
            client.startPinging()
            #expect(client.send("hello".data(using: .utf8)!) == 5)
            run(client)
            #expect(client.received == "olleh".data(using: .utf8))
            #expect(client.lastError == nil && client.outputChanges == 1)
            while client.pings < 2 {
                RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.01))
            }
        }
    }

    @Test func `a subclass can override a stream's methods`() {
        let stream = CountdownStream(from: 3)
        stream.open()
        var bytes: [UInt8] = []
        var byte: UInt8 = 0
        while stream.hasBytesAvailable, stream.read(&byte, maxLength: 1) == 1 { bytes.append(byte) }
        #expect(bytes == [3, 2, 1])
        let wrapper = WrappingStream(stream)
        wrapper.open()
        #expect(wrapper.read(&byte, maxLength: 1) == 0)
    }
}
