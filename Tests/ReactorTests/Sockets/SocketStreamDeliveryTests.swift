import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Accepted bytes arrive, or the stream fails.
@Suite(.runLoop) struct SocketStreamDeliveryTests {
    enum Ending: CaseIterable {
        case closing, release, both
    }

    @Test(arguments: SocketOrigin.allCases, Ending.allCases)
    func `buffered bytes arrive after closing, followed by the end`(origin: SocketOrigin, ending: Ending)
        async throws
    {
        try await onItsOwnThread {
            let (fixture, recorder) = (try SocketFixture(origin, isNarrow: true), Recorder())
            fixture.output.writeBufferSize = 65_536
            for stream in fixture.streams { stream.start(recorder) }
            let peer = try fixture.peer
            RunLoop.current.serve { recorder.events.count == 3 }
            let sent = fixture.fill()
            if ending != .release { fixture.closeBoth() }
            if ending != .closing { fixture.releaseStreams() }
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(peer.receiveToEnd(by: 1000)?.count == sent)
        }
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor])
    func `buffered bytes are sent in other modes, and after the stream has left the loop`(
        origin: SocketOrigin
    ) throws {
        for isRemoved in [false, true] {
            let (fixture, recorder) = (try SocketFixture(origin, isNarrow: true), Recorder())
            fixture.output.writeBufferSize = 100_000
            fixture.output.start(recorder)
            RunLoop.current.serve { fixture.output.streamStatus == .open }
            let peer = try fixture.peer
            let sent = fixture.fill()
            if isRemoved { fixture.output.remove(from: .current, forMode: .default) }
            #expect(peer.receive(sent).count == sent)
        }
    }

    /// Without a graceful close the kernel would reset the connection and discard unsent bytes.
    @Test(arguments: [SocketOrigin.ipv4, .ipv6, .path], [0, 65_536])
    func `unread input does not discard written bytes`(origin: SocketOrigin, size: Int)
        async throws
    {
        try await onItsOwnThread {
            let (fixture, recorder) = (try SocketFixture(origin), Recorder())
            fixture.output.writeBufferSize = size
            for stream in fixture.streams { stream.start(recorder) }
            let peer = try fixture.peer
            peer.send(pattern(10_000))
            var (left, sent) = (pattern(400_000)[...], 0)
            RunLoop.current.serve { fixture.input.hasBytesAvailable }
            while !left.isEmpty, fixture.output.hasSpaceAvailable {
                let count = fixture.output.writeOnce(left)
                left = left.dropFirst(count)
                sent += count
            }
            fixture.closeBoth()
            peer.send(pattern(10_000))
            #expect(peer.receiveToEnd(by: 1000) == pattern(sent))
        }
    }

    @Test func `a peer that continues to send after closing receives everything`() throws {
        let fixture = try SocketFixture(.ipv4)
        try fixture.openBoth()
        let peer = try fixture.peer
        let sent = fixture.output.writeOnce(pattern(2_000_000))
        fixture.closeBoth()
        var received = 0
        while let piece = peer.receive(upTo: 10_000), !piece.isEmpty {
            received += piece.count
            #expect(peer.send(pattern(1000)))
        }
        #expect(received == sent)
    }

    @Test func `a closed stream fails if its bytes are lost`() throws {
        for size in [0, 65_536] {
            let fixture = try SocketFixture(.ipv4, isNarrow: true)
            try fixture.openBoth()
            let peer = try fixture.peer
            fixture.output.writeBufferSize = size
            peer.send([1])
            _ = fixture.output.writeOnce(pattern(3_000_000))
            fixture.closeBoth()
            #expect(fixture.output.streamStatus == .closed)
            peer.reset()
            waitUntil { fixture.output.streamStatus == .error }
            #expect(fixture.output.streamError != nil)
        }
    }

    @Test func `closing delivers everything when no descriptor is free`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let fixture = try SocketFixture(.ipv4)
                try fixture.openBoth()
                let peer = try fixture.peer
                // The thread that closes sockets has what it needs before.
                let warm = try SocketFixture(.ipv4)
                try warm.openBoth()
                try warm.peer.send([1])
                warm.output.write(pattern(10))
                warm.closeBoth()
                _ = try warm.peer.receiveToEnd()
                let sent = fixture.output.writeOnce(pattern(3_000_000))
                var limit = rlimit(rlim_cur: 256, rlim_max: 256)
                setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
                var taken: [CInt] = []
                while case let number = dup(0), number >= 0 { taken.append(number) }
                fixture.closeBoth()
                peer.send(pattern(5000))
                let received = peer.receiveToEnd(by: 10_000)?.count
                for number in taken { close(number) }
                try #require(received == sent)
            }
        }
    }

    @Test func `a closed stream whose peer does not read fails after the write timeout`() throws {
        let fixture = try SocketFixture(.ipv4, isNarrow: true)
        try fixture.openBoth()
        fixture.output.writeBufferSize = 65_536
        #expect(fixture.output.setProperty(Duration.milliseconds(50), forKey: .socketWriteTimeoutKey))
        _ = fixture.output.writeOnce(pattern(3_000_000))
        fixture.closeBoth()
        waitUntil { fixture.output.streamStatus == .error }
        #expect(fixture.output.streamErrno == .timedOut)
    }

    @Test(arguments: [true, false])
    func `buffered bytes for a borrowed descriptor arrive, even if its number is reused`(isPair: Bool)
        async throws
    {
        try await onItsOwnThread {
            let ((peer, other), (stranger, fresh)) = (try SocketPeer.pair(), try SocketPeer.pair())
            SocketPeer.narrow(other.rawValue)
            let output =
                isPair ? Stream.connection(descriptor: other).output : OutputStream(descriptor: other)
            output.writeBufferSize = 65_536
            output.schedule(in: .current, forMode: .default)
            output.open()
            #expect(output.writeBufferSize == 65_536)
            let sent = fill(output)
            output.close()
            // The number is its owner's again, and in use for something else at once.
            #expect(dup2(fresh.rawValue, other.rawValue) == other.rawValue)
            #expect(peer.receiveToEnd(by: 1000)?.count == sent)
            try other.close()
            try fresh.close()
            #expect(stranger.receiveToEnd() == [])
        }
    }

    @Test func `flush returns when the kernel has everything, or at its deadline`() throws {
        let fixture = try SocketFixture(.descriptor, isNarrow: true)
        fixture.output.writeBufferSize = 65_536
        #expect(throws: Errno.badFileDescriptor) { try fixture.output.flush() }
        fixture.output.start(nil)
        let (peer, sent) = (try fixture.peer, fixture.fill())
        #expect(throws: Errno.timedOut) {
            try fixture.output.flush(until: .now.advanced(by: .milliseconds(1)))
        }
        let reader = try RunLoopThread(name: "reader")
        reader.runLoop.perform { _ = peer.receive(sent) }
        try fixture.output.flush()
        reader.runLoop.performAndWait {}
        peer.close()
        waitUntil { fixture.output.writeOnce([1]) == -1 }
        let error = try #require(fixture.output.streamError as? IOError)
        #expect(throws: error) { try fixture.output.flush() }
    }

    @Test(arguments: ExitingWriter.Ending.allCases, [0, 100_000])
    func `written bytes arrive if the process exits at once`(ending: ExitingWriter.Ending, size: Int)
        async throws
    {
        let server = try SocketServer(.ipv4)
        let received = Shared<[UInt8]?>(nil)
        let reader = try RunLoopThread(name: "reader")
        reader.runLoop.perform {
            guard let peer = try? server.accept() else { return }
            if ending != .nothing { peer.send(pattern(1000)) }
            received.value = peer.receiveToEnd(by: 700)
        }
        let writer = ExitingWriter(port: server.port, ending: ending, bufferSize: size)
        let result = await #expect(
            processExitsWith: .success, observing: [\.standardOutputContent]
        ) { [writer = writer as ExitingWriter] in try writer.run() }
        try await onItsOwnThread { reader.runLoop.performAndWait {} }
        let text = String(decoding: result?.standardOutputContent ?? [], as: UTF8.self)
        let sent = text.split(whereSeparator: \.isNewline).compactMap { Int($0) }.last
        #expect(received.value != nil && received.value?.count == sent)
    }
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
        let (input, output) = Stream.connection(to: .ipv4Loopback(port: port))
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

extension SocketFixture {
    /// Writes until nothing more is accepted, and returns how much was.
    func fill() -> Int { ReactorTests.fill(output) }
}

private func fill(_ output: OutputStream) -> Int {
    var sent = 0
    while case let count = output.writeOnce(pattern(5000)), count > 0 { sent += count }
    return sent
}
