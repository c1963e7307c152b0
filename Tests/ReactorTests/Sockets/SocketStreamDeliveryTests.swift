import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Accepted bytes arrive, or the stream fails.
@Suite(.runLoop) struct SocketStreamDeliveryTests {
    /// poll(2) reports room later than a write finds it.
    @Test(arguments: [SocketOrigin.ipv4, .descriptor])
    func `a socket that delivers an event for space has space, until its peer must read`(origin: SocketOrigin)
        throws
    {
        let fixture = try SocketFixture(origin)
        let (recorder, loop) = (Recorder(), RunLoop.current)
        var (written, denials) = (0, 0)
        recorder.onEvent = { stream, event in
            guard event == .hasSpaceAvailable, let output = stream as? OutputStream else { return }
            if !output.hasSpaceAvailable { denials += 1 }
            while output.hasSpaceAvailable, written < 20_000_000 {
                written += max(0, output.writeOnce([UInt8](repeating: 1, count: 3000)))
            }
            if written >= 20_000_000 { output.close() }
        }
        for stream in fixture.streams { stream.start(recorder) }
        let peer = try fixture.peer
        let reader = try JoinableThread(name: "reader") { _ = peer.receiveToEnd() }
        loop.serve { fixture.output.streamStatus == .closed }
        fixture.input.close()
        reader.join()
        #expect(denials == 0)
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor], [true, false])
    func `buffered bytes are sent although the loop does not run`(
        origin: SocketOrigin, isRemoved: Bool
    ) throws {
        let fixture = try SocketFixture(origin, isNarrow: true)
        fixture.output.writeBufferSize = 100_000
        try fixture.start(Recorder(), Recorder())
        let sent = fixture.fill()
        if isRemoved { fixture.output.remove(from: .current, forMode: .default) }
        #expect(try fixture.peer.receive(sent).count == sent)
    }

    @Test(arguments: [0, 65_536])
    func `a closed stream fails if its bytes are lost`(bufferSize: Int) throws {
        let fixture = try fixtureWithUnreadBytes(bufferSize)
        fixture.closeBoth()
        #expect(fixture.output.streamStatus == .closed)
        try fixture.peer.reset()
        waitUntil { fixture.output.streamStatus == .error }
        #expect(fixture.output.streamError != nil)
    }

    /// In virtual time: otherwise the timeout may pass before the stream is closed.
    @Test(arguments: [0, 65_536])
    func `a closed stream fails if its bytes are not read in time`(bufferSize: Int) throws {
        try withVirtualTime { time in
            // A write that waits lets the clock run.
            let fixture = try fixtureWithUnreadBytes(bufferSize, writeTimeout: .seconds(2))
            fixture.closeBoth()
            #expect(fixture.output.streamStatus == .closed)
            while fixture.output.streamStatus != .error { time.advance(by: .seconds(2)) }
            #expect(fixture.output.streamErrno == .timedOut)
        }
    }

    @Test(arguments: [0, 65_536])
    func `a stream that is closed when its timeout passes fails, too`(bufferSize: Int) throws {
        for round in 0..<200 {
            let fixture = try fixtureWithUnreadBytes(bufferSize, writeTimeout: .milliseconds(1))
            // Around the timeout, which began with the write.
            let end = Deadline.now + .microseconds(700 + 3 * round)
            while .now < end {}
            fixture.closeBoth()
            waitUntil { fixture.output.streamStatus == .error }
        }
    }

    private func fixtureWithUnreadBytes(_ bufferSize: Int, writeTimeout: Duration? = nil) throws
        -> SocketFixture
    {
        let fixture = try SocketFixture(.ipv4, isNarrow: true)
        try fixture.openBoth()
        fixture.output.writeBufferSize = bufferSize
        fixture.connection.writeTimeout = writeTimeout
        try fixture.peer.send([1])
        _ = fixture.output.writeOnce(pattern(3_000_000))
        return fixture
    }

    @Test func `closing with unread input discards no byte that was written`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        let peer = try fixture.peer
        peer.send([1])
        waitUntil { fixture.input.hasBytesAvailable }
        #expect(fixture.output.write(pattern(10)) == 10)
        // The peer's kernel has acknowledged them.
        waitUntil { unreadCount(of: peer.descriptor) == 10 }
        fixture.closeBoth()
        #expect(peer.receiveToEnd() == pattern(10))
    }

    #if DEBUG
    @Test(arguments: [true, false])
    func `without descriptors, closing with unread input discards no byte that was written`(isInUse: Bool)
        async
    {
        await #expect(processExitsWith: .success) { [isInUse] in
            let server = try SocketServer()
            let client = try SocketPeer(connectedTo: server.address)
            let peer = try server.accept()
            peer.send([1])
            waitUntil { unreadCount(of: client.descriptor) == 1 }
            client.send(pattern(10))
            try waitForStreamsThread()
            let copy = dup(client.number)
            client.close()
            withoutDescriptors { closeGracefully(copy, isInUse: isInUse) }
            #expect(peer.receiveToEnd() == pattern(10))
        }
    }
    #endif

    @Test(arguments: [true, false])
    func `buffered bytes arrive although a borrowed number is reused`(isPair: Bool) throws {
        let ((peer, other), (stranger, fresh)) = (try SocketPeer.pair(), try SocketPeer.pair())
        SocketPeer.narrow(other.rawValue)
        let output =
            isPair
            ? Connection(descriptor: other, closeWhenDone: false).streams.output
            : OutputStream(descriptor: other)
        output.writeBufferSize = 65_536
        output.schedule(in: .current, forMode: .default)
        output.open()
        #expect(output.writeBufferSize == 65_536)
        let sent = output.fill()
        output.close()
        // The number is its owner's again, and in use for something else at once.
        #expect(dup2(fresh.rawValue, other.rawValue) == other.rawValue)
        #expect(peer.receiveToEnd(by: 1000)?.count == sent)
        try other.close()
        try fresh.close()
        #expect(stranger.receiveToEnd() == [])
    }

    @Test func `flush returns when the kernel has everything, or at its deadline`() throws {
        let fixture = try SocketFixture(.descriptor, isNarrow: true)
        fixture.output.writeBufferSize = 65_536
        expectErrno(.badFileDescriptor) { try fixture.output.flushAndWait() }
        fixture.output.start(nil)
        let (peer, sent) = (try fixture.peer, fixture.fill())
        expectErrno(.timedOut) { try fixture.output.flushAndWait(until: .after(milliseconds: 1)) }
        let reader = try Background { peer.receive(sent).count }
        try fixture.output.flushAndWait()
        #expect(reader.value == sent)
        peer.close()
        waitUntil { fixture.output.writeOnce([1]) == -1 }
        let error = try #require(fixture.output.streamError as? IOError)
        #expect(throws: error) { try fixture.output.flushAndWait() }
    }

    @Test func `a flush after the end of the output waits for the bytes before that`() throws {
        let fixture = try SocketFixture(.descriptor, isNarrow: true)
        fixture.output.writeBufferSize = 65_536
        fixture.output.start(nil)
        let (peer, sent) = (try fixture.peer, fixture.fill())
        try fixture.output.shutDown()
        expectErrno(.timedOut) { try fixture.output.flushAndWait(until: .after(milliseconds: 1)) }
        let reader = try Background { peer.receiveToEnd(by: 1000)?.count }
        try fixture.output.flushAndWait()
        #expect(reader.value == sent)
        fixture.closeBoth()
        expectErrno(.badFileDescriptor) { try fixture.output.flushAndWait() }
    }

    // MARK: Processes of their own

    @Test(arguments: ExitingWriter.Ending.allCases, [0, 100_000])
    func `written bytes arrive if the process exits`(ending: ExitingWriter.Ending, size: Int) async throws {
        let server = try SocketServer(.ipv4)
        let received = try Background { () -> [UInt8]? in
            guard let peer = try? server.accept() else { return nil }
            if ending != .nothing { peer.send(pattern(1000)) }
            return peer.receiveToEnd(by: 700)
        }
        let writer = ExitingWriter(port: server.port, ending: ending, bufferSize: size)
        let result = await #expect(
            processExitsWith: .success, observing: [\.standardOutputContent]
        ) { [writer = writer as ExitingWriter] in try writer.run() }
        let text = String(decoding: result?.standardOutputContent ?? [], as: UTF8.self)
        let sent = text.split(whereSeparator: \.isNewline).compactMap { Int($0) }.last
        #expect(sent != nil && received.value?.count == sent)
    }

    /// With few descriptors left the sender gets one of its own, but its loop cannot register it.
    @Test(arguments: 0..<6)
    func `buffered bytes are sent when few descriptors are free, or none`(spare: Int) async {
        await #expect(processExitsWith: .success) { [spare] in
            try onAThread {
                let fixture = try SocketFixture(.descriptor, isNarrow: true)
                fixture.output.writeBufferSize = 65_536
                for stream in fixture.streams { stream.start(nil) }
                for number in takeDescriptors(upTo: 128).suffix(spare) { close(number) }
                let sent = fixture.fill()
                try #require(try fixture.peer.receive(sent).count == sent)
                try #require(fixture.output.streamError == nil)
            }
        }
    }

    /// Waiting for the last acknowledgement must not consume the error, which the kernel reports once.
    @Test func `a reset after the output was shut down is an error of the input`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let fixture = try SocketFixture(.ipv4, isNarrow: true)
                try fixture.openBoth()
                let peer = try fixture.peer
                try fixture.narrow()
                while fixture.output.hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(10_000)) }
                let before = openSockets()
                try fixture.output.shutDown()
                try #require(openSockets() == before + 1)
                peer.reset()
                waitUntil { openSockets() == before - 1 }
                try #require(fixture.input.read(upTo: 1).isEmpty)
                try #require(fixture.input.streamErrno == .connectionReset)
            }
        }
    }
}

/// Leaves this process no descriptor below `limit`, and returns those that this has opened.
@discardableResult
private func takeDescriptors(upTo limit: rlim_t) -> [CInt] {
    var limits = rlimit(rlim_cur: limit, rlim_max: limit)
    setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limits)
    var taken: [CInt] = []
    while case let number = dup(0), number >= 0 { taken.append(number) }
    return taken
}

/// A process that writes to a server, and exits.
struct ExitingWriter: Codable, Sendable {
    enum Ending: String, CaseIterable, Codable, Sendable {
        case closing, shuttingDown, nothing
    }

    let port: UInt16
    let ending: Ending
    let bufferSize: Int

    func run() throws {
        let (input, output) = Connection(to: .ipv4Loopback(port: port)).streams
        output.writeBufferSize = bufferSize
        for stream in [input, output] {
            stream.schedule(in: .current, forMode: .default)
            stream.open()
        }
        // Input that is not read would have the kernel reset the connection.
        if ending != .nothing { while !input.hasBytesAvailable { sched_yield() } }
        while output.streamStatus == .opening { sched_yield() }
        var sent = 0
        while output.hasSpaceAvailable, sent < 1_000_000 { sent += output.writeOnce(pattern(5000)) }
        switch ending {
        case .closing: for stream in [input, output] { stream.close() }
        case .shuttingDown: try output.shutDown()
        case .nothing: break
        }
        print(sent)
        fflush(nil)
        exit(0)
    }
}
