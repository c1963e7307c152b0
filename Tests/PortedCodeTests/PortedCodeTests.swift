import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct PortedCodeTests {
    /// Starts a server that calls `body` with each connection. Returns its thread and its port.
    private func startServer(_ body: @escaping @Sendable (Listener.Connection) -> Void) throws -> (
        RunLoopThread, Int
    ) {
        let thread = try RunLoopThread(name: "server")
        let port = try thread.runLoop.performAndWait { () throws -> Int in
            let listener = try Listener(SocketAddress.ipv4Loopback(port: 0)) { _, connection in
                body(connection)
            }
            try RunLoop.current.add(listener, forMode: .default)
            return Int(listener.localAddress.port ?? 0)
        }
        return (thread, port)
    }

    /// Sends the first five bytes back in reverse order.
    @Sendable private func sendReversed(_ connection: Listener.Connection) {
        connection.input.open()
        connection.output.open()
        connection.output.write(connection.input.read(upTo: 5).reversed())
        connection.output.close()
        connection.input.close()
    }

    @Test(arguments: [true, false])
    func `a Core Foundation client on a queue exchanges data, and fails if it requires SSL 3`(
        isPlain: Bool
    ) async throws {
        let (server, port) = try startServer(sendReversed)
        let outcome = try await onItsOwnThread { () -> (Data, Int?) in
            let outcome = Shared<(Data, Int?)?>(nil)
            let client = QueueClient()
            client.onEnd = { data, error in outcome.value = (data, (error as NSError?)?.code) }
            let level = [kCFStreamSSLLevel as NSString: kCFStreamSocketSecurityLevelSSLv3 as NSString]
            client.connect(host: "127.0.0.1", port: port, settings: isPlain ? [:] : level)
            #expect(client.write("hello".data(using: .utf8)!) == isPlain)
            waitUntil { outcome.value != nil }
            return outcome.value!
        }
        #expect(outcome.0 == (isPlain ? "olleh".data(using: .utf8)! : Data()))
        #expect((outcome.1 == nil) == isPlain)
        server.stop()
    }

    @Test func `a Cocoa chat client exchanges data with a server`() async throws {
        let (server, port) = try startServer(sendReversed)
        try await onItsOwnThread {
            let client = ChatClient()
            client.connect(host: "127.0.0.1", port: port)
            client.startPinging()
            #expect(client.send("hello".data(using: .utf8)!) == 5)
            while !client.isOver, RunLoop.current.run(mode: .default, before: .distantFuture) {}
            #expect(client.received == "olleh".data(using: .utf8))
            #expect(client.lastError == nil && client.outputChanges == 1)
            while client.pings < 2,
                RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.01))
            {}
            #expect(client.pings >= 2)
        }
        server.stop()
    }

    @Test func `a client that requires SSL 3 gets an error, whatever type the level has`() {
        let level = StreamSocketSecurityLevel.ssLv3
        for security in [level, level.rawValue, level as AnyObject, level.rawValue as NSString] as [Any] {
            let client = ChatClient()
            client.connect(host: "127.0.0.1", port: 1, security: security)
            while !client.isOver, RunLoop.current.run(mode: .default, before: .distantFuture) {}
            #expect(client.lastError?.code == Int(EPROTONOSUPPORT))
            #expect(client.lastError?.localizedDescription.contains("TLS") == true)
        }
    }

    @Test func `a refused connection reports ECONNREFUSED`() async throws {
        let (server, port) = try startServer { _ in }
        server.stop()
        try await onItsOwnThread {
            let client = ChatClient()
            client.connect(host: "127.0.0.1", port: port)
            while !client.isOver, RunLoop.current.run(mode: .default, before: .distantFuture) {}
            #expect(client.lastError?.domain == NSPOSIXErrorDomain)
            #expect(client.lastError?.code == Int(ECONNREFUSED))
        }
    }

    @Test func `a client can poll without a run loop`() throws {
        let (server, port) = try startServer { connection in
            connection.output.open()
            connection.output.write([1, 2, 3])
            connection.output.close()
        }
        var (input, output): (InputStream?, OutputStream?)
        Stream.getStreamsToHost(
            withName: "127.0.0.1", port: port, inputStream: &input, outputStream: &output)
        input!.open()
        output!.open()
        while output!.streamStatus == .opening { sched_yield() }
        while !input!.hasBytesAvailable { sched_yield() }
        var bytes = [UInt8](repeating: 0, count: 3)
        #expect(input!.read(&bytes, maxLength: 3) == 3 && bytes == [1, 2, 3])
        input!.close()
        output!.close()
        server.stop()
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

    @Test func `a timer's dates and tolerance have Foundation's types`() {
        let fired = Shared(0)
        let timer = Timer.scheduledTimer(withTimeInterval: 0.001, repeats: false) { _ in fired.value += 1
        }
        let date = timer.fireDate
        timer.tolerance += 0.001
        timer.fireDate = date.addingTimeInterval(0.001)
        RunLoop.current.add(
            Timer(timeInterval: 0, repeats: true, block: { $0.invalidate() }), forMode: .commonModes)
        while fired.value == 0, RunLoop.current.run(mode: .defaultRunLoopMode, before: Date.distantFuture) {}
        #expect(fired.value == 1 && Date() >= date)
    }
}
