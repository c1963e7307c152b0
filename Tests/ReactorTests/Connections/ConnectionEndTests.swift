import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ConnectionEndTests {
    private func pair(_ options: Connection.Options = .init()) throws -> (Connection, SocketPeer) {
        let (peer, other) = try SocketPeer.pair()
        SocketPeer.narrow(other.rawValue)
        return (Connection(descriptor: other, options: options), peer)
    }

    /// A connection over TCP, whose peer has a small receive buffer.
    private func connect(_ options: Connection.Options) async throws -> (Connection, SocketPeer) {
        let listener = try SocketPeer(family: CInt(SocketAddress.Family.ipv4.rawValue))
        listener.narrow()
        try listener.bind(to: .ipv4Loopback(port: 0))
        try listener.listen()
        let connection = try await Connection.connect(to: try listener.localAddress, options: options)
        return (connection, try listener.accept())
    }

    /// As a delegate does.
    private func finishNow(_ connection: Connection) throws { try connection.sendEnd() }

    // MARK: Before it is opened

    @Test(arguments: [true, false], [true, false])
    func `a connection that was closed before it was opened stays closed`(isClient: Bool, isReset: Bool)
        async throws
    {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let connection = isClient ? Connection(to: try listener.localAddress) : try pair().0
        if isReset { connection.reset() } else { connection.close() }
        let state = connection.state
        #expect(state == (isReset ? .failed : .closed))
        let calls: [() async throws -> Void] = [
            { try await connection.open() }, { _ = try await connection.read() },
            { try await connection.write("late") }, { _ = try await connection.chunks().first { _ in true } },
            { try await connection.finish() }, { try await connection.flush() },
            { try connection.send("late") }, { try finishNow(connection) },
        ]
        for call in calls {
            let error = await thrownError(by: call)
            #expect(
                error?.errno == (isReset ? .connectionAbort : .badFileDescriptor),
                "\(String(describing: error))")
        }
        #expect(connection.state == (isReset ? .failed : .closed))
        #expect(connection.descriptor == nil && connection.receive() == [] && connection.writableCount == 0)
    }

    @Test func `a delegate gets no event of a connection that was closed before, and is released`() throws {
        let (connection, peer) = try pair()
        connection.close()
        var witness: Witness? = Witness()
        let fate = Fate(witness!)
        connection.open(delegate: Silent(witness!))
        witness = nil
        RunLoop.current.poll()
        #expect(fate.witness == nil && connection.state == .closed && peer.receiveToEnd() == [])
    }

    // MARK: Both directions

    @Test(arguments: [true, false])
    func `a connection is closed once both directions have ended`(peerIsFirst: Bool) async throws {
        let (connection, peer) = try pair()
        #expect(connection.state == .notOpen)
        try await connection.open()
        if !peerIsFirst { try await connection.finish() }
        #expect(connection.state == .open)
        peer.shutDown()
        #expect(try await connection.read() == nil)
        if peerIsFirst {
            #expect(connection.state == .open)
            try await connection.write("answer")
            try await connection.finish()
        }
        #expect(connection.state == .closed)
        #expect(peer.receiveToEnd() == (peerIsFirst ? Array("answer".utf8) : []))
        #expect(try await connection.read() == nil)
    }

    // MARK: The time for closing

    /// The bytes that wait are in the kernel, or in the write buffer.
    @Test(arguments: [65_536, 8_000_000])
    func `a peer that takes a few bytes now and then is reset after the close timeout`(count: Int)
        async throws
    {
        let timeout = Duration.milliseconds(300)
        let options = Connection.Options(
            writeTimeout: .seconds(600), closeTimeout: timeout, writeBufferSize: 8_000_000)
        let (connection, peer) = try await connect(options)
        try connection.send([UInt8](repeating: 1, count: count))
        let begin = ContinuousClock.now
        connection.close()
        // At most 16 bytes a millisecond, which is too slow for all of them.
        var received = 0
        while let bytes = peer.receive(upTo: 16), !bytes.isEmpty {
            received += bytes.count
            usleep(1000)
        }
        #expect(errno == ECONNRESET && received < count)
        #expect(ContinuousClock.now - begin >= timeout)
        waitUntil { connection.state == .failed }
        #expect((connection.error as? IOError)?.errno == .timedOut)
    }

    /// As a peer of a pair of streams, which have no close timeout.
    @Test(arguments: [0, 100_000])
    func `without a close timeout a peer has the time that its bytes take at 1 KiB a second`(bufferSize: Int)
        throws
    {
        try withVirtualTime { time in
            let fixture = try SocketFixture(.ipv4, isNarrow: true)
            try fixture.openBoth()
            try fixture.narrow()
            fixture.output.writeBufferSize = bufferSize
            fixture.connection.writeTimeout = .seconds(1_000_000)
            let count = fixture.output.writeOnce([UInt8](repeating: 1, count: 100_000))
            fixture.closeBoth()
            var passed = 0
            while fixture.output.streamStatus != .error {
                // Without each of the polls in between, for which a loop that watches descriptors waits in real time.
                time.skip(.seconds(10))
                time.advance(by: .zero)
                passed += 10
            }
            // The peer's kernel has taken some.
            #expect(passed >= 30 + max(0, count - 40_000) / 1024)
            #expect(fixture.output.streamErrno == .timedOut)
        }
    }

    // MARK: The end of the output

    @Test func `an end without waiting fails before the connection is open, and while a task writes`()
        async throws
    {
        let (connection, peer) = try pair()
        let early = await thrownError { try finishNow(connection) }
        #expect(early?.errno == .socketNotConnected)
        let writing = Task { try await connection.write([UInt8](repeating: 1, count: 1_000_000)) }
        #expect(peer.receive(upTo: 1) == [1])
        let busy = await thrownError { try finishNow(connection) }
        #expect(busy?.errno == .resourceBusy)
        let received = Answer<[UInt8]?>()
        let reader = try JoinableThread { received.give(peer.receiveToEnd()) }
        try await writing.value
        for _ in 0..<2 { try finishNow(connection) }
        reader.join()
        #expect(received.wait()?.count == 999_999)
        connection.close()
    }

    @Test(arguments: [true, false])
    func `sending, and its end, throw why the connection has ended`(isReset: Bool) async throws {
        let (connection, _) = try pair()
        try await connection.open()
        if isReset { connection.reset() } else { connection.close() }
        let reason: Errno = isReset ? .connectionAbort : .badFileDescriptor
        #expect(await thrownError { try finishNow(connection) }?.errno == reason)
        #expect(await thrownError { try connection.send("late") }?.errno == reason)
    }

    @Test func `a message fails the connection if there is no descriptor to send the rest by`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let (peer, other) = try SocketPeer.pair()
                let size = 8_000_000
                let connection = Connection(descriptor: other, options: .init(writeBufferSize: size))
                connection.open(delegate: Echo())
                RunLoop.current.poll()
                let error = #expect(throws: IOError.self) {
                    try withoutDescriptors { try connection.send([UInt8](repeating: 1, count: size)) }
                }
                #expect(error?.errno == .tooManyOpenFiles)
                #expect(connection.state == .failed)
                withExtendedLifetime(peer) {}
            }
        }
    }

    @Test func `a write behind an end fails`() async throws {
        let (connection, peer) = try pair()
        let writing = Task { try await connection.write([UInt8](repeating: 1, count: 1_000_000)) }
        #expect(peer.receive(upTo: 1) == [1])
        let finishing = Task.immediate { try await connection.finish() }
        let behind = Task.immediate { try await connection.write("behind") }
        let received = Answer<[UInt8]?>()
        let reader = try JoinableThread { received.give(peer.receiveToEnd()) }
        try await writing.value
        try await finishing.value
        await #expect(throws: IOError.self) { try await behind.value }
        reader.join()
        #expect(received.wait()?.count == 999_999)
    }

    @Test func `a peer that pauses after the end of the output does not fail the connection`() async throws {
        try await withVirtualTime { time in
            let (connection, peer) = try await connect(.init())
            // More than the peer's buffer.
            let bytes = [UInt8](repeating: 1, count: 100_000)
            try await connection.write(bytes)
            try await connection.finish()
            try await time.loop.clock().sleep(for: .seconds(40))
            #expect(connection.state == .open && connection.error == nil)
            #expect(peer.receiveToEnd() == bytes)
            peer.send("answer")
            #expect(try await connection.read(exactly: 6) == Array("answer".utf8))
            connection.close()
        }
    }

    @Test func `a peer that sends for ever does not postpone a fault`() async throws {
        let (connection, peer) = try pair(.init(writeTimeout: .milliseconds(1)))
        try await connection.open()
        // There are always bytes.
        #expect(peer.send([UInt8](repeating: 1, count: 10_000)))
        var countAfterFault = 0
        await #expect(throws: IOError.self) {
            async let _ = connection.write([UInt8](repeating: 2, count: 4_000_000))
            while countAfterFault < 100_000, peer.send([UInt8](repeating: 1, count: 1000)),
                let bytes = try await connection.read(upTo: 1000)
            {
                if connection.error != nil { countAfterFault += bytes.count }
                await Task.yield()
            }
        }
        #expect((connection.error as? IOError)?.errno == .timedOut)
        connection.close()
    }

    @Test(arguments: [true, false], [true, false])
    func `a reset before the close is reported if the peer has not acknowledged everything`(
        isFinished: Bool, isFound: Bool
    ) async throws {
        let (connection, peer) = try await connect(.init())
        try connection.send([UInt8](repeating: 1, count: 60_000))
        if isFinished { try await connection.finish() }
        peer.reset()
        let descriptor = try #require(connection.descriptor)
        waitUntil { descriptor.socketOption(CInt(IPPROTO_TCP), TCP_INFO) & 0xff == TCP_CLOSE }
        // Another call may have taken the kernel's error.
        if isFound { _ = descriptor.socketOption(SOL_SOCKET, SO_ERROR) }
        connection.close()
        waitUntil { connection.state == .failed }
        #expect((connection.error as? IOError)?.errno == .connectionReset)
    }

    @Test func `a reset is no end of the peer's, though another thread writes`() async throws {
        for _ in 0..<200 {
            let (connection, peer) = try await connect(.init())
            let writing = Task.detached {
                while true { try await connection.write([UInt8](repeating: 1, count: 100)) }
            }
            peer.send("a part")
            #expect(peer.receive(upTo: 1) == [1])
            peer.reset()
            let error = await thrownError { while try await connection.read() != nil {} }
            #expect(error?.errno == .connectionReset, "\(String(describing: error))")
            connection.close()
            _ = await writing.result
        }
    }

    // MARK: Opening

    @Test func `a cancelled open does nothing to an open connection`() async throws {
        let (connection, peer) = try pair()
        peer.shutDown()
        #expect(try await connection.read() == nil)
        let opening = Task {
            withUnsafeCurrentTask { unsafe $0?.cancel() }
            try await connection.open()
        }
        try await opening.value
        try await connection.write("answer")
        connection.close()
        #expect(peer.receiveToEnd() == Array("answer".utf8))
    }

    @Test func `tasks wait for the connection to be open beside one that reads`() async throws {
        let listener = try SocketPeer(listeningAt: .ipv4Loopback(port: 0))
        let connection = Connection(to: try listener.localAddress)
        let reading = Task.immediate { try await connection.read(exactly: 2) }
        let opening = (0..<3).map { _ in Task.immediate { try await connection.open() } }
        for task in opening { try await task.value }
        let peer = try listener.accept()
        // Open already, whatever the reading task does.
        try await connection.open()
        peer.send("ab")
        #expect(try await reading.value == Array("ab".utf8))
        connection.close()
    }

    // MARK: Resets

    /// How a connection begins to end.
    enum Beginning: CaseIterable { case none, finished, closed }

    @Test(arguments: Beginning.allCases, [true, false])
    func `a reset drops what waits, also behind an end or a close`(beginning: Beginning, isBuffered: Bool)
        async throws
    {
        let (connection, peer) = try await connect(.init(writeBufferSize: 8_000_000))
        // More than the kernel takes, or less than the peer has room for.
        let count = isBuffered ? 8_000_000 : 20_000
        try connection.send([UInt8](repeating: 1, count: count))
        switch beginning {
        case .none: break
        case .finished: try finishNow(connection)
        case .closed: connection.close()
        }
        connection.reset()
        #expect((connection.error as? IOError)?.errno == .connectionAbort)
        #expect(connection.descriptor == nil)
        // The peer does not come to the end of the bytes.
        #expect(peer.receiveToEnd() == nil && errno == ECONNRESET)
    }

    @Test func `a reset reaches the peer though the descriptor has a duplicate`() async throws {
        let (connection, peer) = try await connect(.init())
        let duplicate = try #require(connection.descriptor).duplicate()
        defer { try? duplicate.close() }
        connection.reset()
        #expect(peer.receive(upTo: 1) == nil && errno == ECONNRESET)
    }

    @Test(arguments: [true, false])
    func `a reset of a Unix-domain connection drops what waits`(isClosed: Bool) async throws {
        let (connection, peer) = try pair(.init(writeBufferSize: 1_000_000))
        try await connection.open()
        try connection.send([UInt8](repeating: 1, count: 1_000_000))
        if isClosed { connection.close() }
        connection.reset()
        #expect((peer.receiveToEnd()?.count ?? 0) < 1_000_000)
    }

    @Test func `a reset after the end of everything changes nothing`() async throws {
        let (connection, peer) = try await connect(.init())
        try await connection.finish()
        #expect(peer.receiveToEnd() == [])
        peer.shutDown()
        #expect(try await connection.read() == nil)
        connection.close()
        connection.reset()
        #expect(connection.state == .closed)
    }

    @Test func `tasks that wait learn of a reset`() async throws {
        let (connection, peer) = try pair()
        let reading = Task { _ = try await connection.read() }
        let writing = Task { try await connection.write([UInt8](repeating: 1, count: 4_000_000)) }
        #expect(peer.receive(upTo: 1) == [1])
        connection.reset()
        for task in [reading, writing] {
            let error = await thrownError { try await task.value }
            #expect(error?.errno == .connectionAbort)
        }
    }
}

/// A delegate that ignores events.
private final class Silent: ConnectionDelegate {
    private let canary: AnyObject
    init(_ canary: AnyObject) { self.canary = canary }
    func connection(_ connection: Connection, handle event: Connection.Event) {
        Issue.record("An event: \(event)")
    }
}
