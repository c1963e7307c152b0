import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Streams whose connection a transport protects; a masking one, which shows what a connection does for any.
/// SocketStreamTrafficTests has their traffic.
@Suite(.runLoop) struct SecureStreamTests {
    private let loop = RunLoop.current
    private let recorder = Recorder()

    /// The pair's streams have started, and its peer has received the hello.
    private func started(
        _ origin: SocketOrigin = .ipv4, _ security: MaskingSecurity = MaskingSecurity()
    ) throws -> (fixture: SocketFixture, peer: SocketPeer) {
        let fixture = try SocketFixture(origin)
        #expect(fixture.output.protect(by: security))
        for stream in fixture.streams { stream.start(recorder) }
        let peer = try fixture.peer
        #expect(peer.receive(3) == Masking.record(.hello))
        return (fixture, peer)
    }

    /// A protected pair that is open, and whose input is on this loop.
    private func receiving() throws -> (input: InputStream, peer: SocketPeer, fixture: SocketFixture) {
        let fixture = try SocketFixture.protected()
        fixture.schedule(recorder, Recorder())
        return (fixture.input, try fixture.peer, fixture)
    }

    // MARK: The handshake

    @Test(arguments: SocketOrigin.allCases)
    func `a stream is open after the handshake and not before`(origin: SocketOrigin) throws {
        let security = MaskingSecurity()
        let (fixture, peer) = try started(origin, security)
        loop.poll()
        #expect(recorder.events.isEmpty)
        #expect(fixture.streams.allSatisfy { $0.streamStatus == .opening })
        peer.send(Masking.record(.hello))
        loop.serve { recorder.count(.openCompleted) == 2 }
        #expect(try security.threads.value == [streamsLoop().performAndWait { UInt(pthread_self()) }])
        #expect(!fixture.input.hasBytesAvailable)
    }

    @Test(arguments: [true, false])
    func `a server is open after the client's hello, however early`(isFirst: Bool) throws {
        let fixture = try SocketFixture(.descriptor)
        let peer = try fixture.peer
        if isFirst {
            try fixture.openBoth()
            peer.send(Masking.record(.hello))
        }
        #expect(fixture.input.protect(by: MaskingSecurity(isServer: true)))
        for stream in fixture.streams { stream.start(recorder) }
        if !isFirst {
            loop.poll()
            #expect(recorder.events.isEmpty)
            peer.send(Masking.record(.hello))
        }
        #expect(peer.receive(3) == Masking.record(.hello))
        peer.send(Masking.record(.data, [7, 8]))
        #expect(fixture.input.read(upTo: 10) == [7, 8])
        #expect(fixture.output.write([6]) == 1 && peer.receiveRecord()?.bytes == [6])
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor], [true, false])
    func `the handshake ends within the connect timeout`(origin: SocketOrigin, isOpen: Bool) throws {
        let (fixture, begin) = (try SocketFixture(origin), Deadline.now)
        fixture.output.connectTimeout = .seconds(7)
        if isOpen { try fixture.openBoth() }
        fixture.schedule(recorder, recorder)
        if isOpen { fixture.output.connectTimeout = .milliseconds(20) }
        #expect(fixture.input.protect(by: MaskingSecurity()))
        if isOpen {
            #expect(!fixture.input.setProperty(Duration.seconds(1), forKey: .socketConnectTimeoutKey))
        } else {
            fixture.input.connectTimeout = .milliseconds(20)
            for stream in fixture.streams { stream.open() }
        }
        loop.serve { recorder.count(.errorOccurred) == 2 }
        #expect(Deadline.now - begin >= .milliseconds(20))
        for stream in fixture.streams {
            let error = try #require(stream.streamError as? IOError)
            #expect(error.errno == .timedOut)
            // A busy machine may not even have connected by then.
            #expect(isOpen || error.operation == .handshake || origin == .ipv4 && error.operation == .connect)
        }
    }

    enum Failure: CaseIterable { case rejection, end, reset }

    @Test(arguments: Failure.allCases)
    func `a failed handshake fails both halves with its reason`(failure: Failure) throws {
        let (fixture, peer) = try started(.ipv4, MaskingSecurity(rejectsPeer: failure == .rejection))
        switch failure {
        case .rejection: peer.send(Masking.record(.hello))
        case .end: peer.close()
        case .reset: peer.reset()
        }
        loop.serve { recorder.count(.errorOccurred) == 2 }
        #expect(recorder.events == [.errorOccurred, .errorOccurred])
        for stream in fixture.streams {
            switch failure {
            case .rejection: #expect(stream.streamError as? Masking.Failure == .rejected)
            case .end: #expect(stream.streamError as? Masking.Failure == .truncated)
            case .reset:
                let subject = "\(try #require(fixture.server).address)"
                #expect(stream.streamError as? IOError == IOError(.handshake, subject, .connectionReset))
            }
        }
        fixture.closeBoth()
        if failure == .rejection { #expect(peer.receiveToEnd() == []) }
    }

    @Test func `closing during the handshake ends it without events`() throws {
        let (fixture, peer) = try started()
        fixture.closeBoth()
        #expect(peer.receiveToEnd() == [])
        peer.send(Masking.record(.hello))
        loop.poll()
        #expect(recorder.events.isEmpty)
    }

    @Test func `a half that is opened after the other was closed uses the same connection`() throws {
        for _ in 0..<50 {
            let server = try SocketServer()
            let (input, output) = Stream.connection(toHost: "127.0.0.1", port: server.port)
            #expect(input.protect(by: MaskingSecurity()))
            input.open()
            let peer = try server.accept()
            // The streams thread may know by now that the socket is connected, or not.
            input.close()
            output.open()
            peer.answerHello()
            #expect(output.write([4]) == 1)
            #expect(peer.receiveRecord()?.bytes == [4])
            output.close()
        }
    }

    @Test func `protection belongs to a socket that is not closed and not protected yet`() throws {
        let unopened = try SocketFixture(.descriptor)
        #expect(unopened.input.protect(by: MaskingSecurity()))
        #expect(!unopened.output.protect(by: MaskingSecurity(isServer: true)))
        let fixture = try SocketFixture.protected()
        #expect(!fixture.input.protect(by: MaskingSecurity()))
        fixture.closeBoth()
        #expect(!fixture.input.protect(by: MaskingSecurity()))
        #expect(!InputStream(data: [1]).protect(by: MaskingSecurity()))
        let ended = try SocketFixture()
        try ended.openBoth()
        try ended.output.shutDown()
        #expect(!ended.input.protect(by: MaskingSecurity()))
    }

    // MARK: Receiving

    @Test(arguments: [true, false])
    func `asking a stream whether it has bytes takes no event away`(explains: Bool) throws {
        let (input, peer, _) = try receiving()
        loop.poll()
        peer.send(Masking.record(.data, [1]))
        waitUntil { explains ? input.explain().contains("bytes to read") : input.hasBytesAvailable }
        loop.poll()
        #expect(recorder.count(.hasBytesAvailable) == 1)
        #expect(input.read(upTo: 10) == [1])
    }

    @Test func `a delegate that does not read receives one event, and the loop sleeps`() throws {
        let (input, peer, _) = try receiving()
        peer.send(Masking.record(.data, [1]))
        loop.serve { recorder.count(.hasBytesAvailable) == 1 }
        peer.send(Masking.record(.data, [2]))
        loop.poll()
        #expect(loop.passesInAWhile() < 10)
        #expect(recorder.count(.hasBytesAvailable) == 1)
        var bytes: [UInt8] = []
        while bytes.count < 2 { bytes += input.read(upTo: 10) }
        #expect(bytes == [1, 2])
        peer.send(Masking.record(.data, [3]))
        loop.serve { recorder.count(.hasBytesAvailable) == 2 }
    }

    @Test(arguments: [true, false])
    func `a thread without a loop reads all bytes while a loop asks for them`(isScheduled: Bool) throws {
        let fixture = try SocketFixture.protected()
        if isScheduled { fixture.input.schedule(in: .current, forMode: .default) }
        let (input, peer) = (Carrier(fixture.input!), try fixture.peer)
        let reader = try Background { () -> [UInt8] in
            var bytes: [UInt8] = []
            while case let more = input.value.read(upTo: 100), !more.isEmpty { bytes += more }
            return bytes
        }
        let sender = try JoinableThread {
            for start in stride(from: 0, to: 20_000, by: 1000) {
                peer.send(Masking.records(of: Array(pattern(20_000)[start..<start + 1000]), size: 90))
                sched_yield()
            }
            peer.send(Masking.record(.end))
        }
        while fixture.input.streamStatus != .atEnd {
            if isScheduled { loop.poll(passes: 1) } else { _ = fixture.input.hasBytesAvailable }
        }
        #expect(reader.value == pattern(20_000))
        sender.join()
    }

    // MARK: Sending

    @Test func `without descriptors left, bytes that the socket has no room for are sent`() async {
        await #expect(processExitsWith: .success) {
            let fixture = try SocketFixture.protected(isNarrow: true)
            let (peer, mayRead) = (try fixture.peer, Answer<Void>())
            let receiver = try Background { () -> [UInt8]? in
                mayRead.wait()
                return peer.receiveRecordsToEnd()
            }
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            limit.rlim_cur = 0
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            // More than the socket has room for.
            let first = fixture.output.writeOnce(pattern(500_000))
            mayRead.give(())
            let second = fixture.output.writeOnce(pattern(500_000))
            fixture.closeBoth()
            let expected = Array(pattern(500_000).prefix(first) + pattern(500_000).prefix(second))
            let isComplete = first > 0 && second > 0 && receiver.value == expected
            // The test library needs descriptors to end the process itself.
            exit(isComplete ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }

    @Test func `tasks read and write protected bytes`() async throws {
        let fixture = try SocketFixture.protected()
        let (input, output, peer) = (fixture.input!, fixture.output!, try fixture.peer)
        let echo = try JoinableThread {
            while let (type, bytes) = peer.receiveRecord(), type == .data {
                peer.send(Masking.records(of: bytes, size: 7))
            }
            peer.send(Masking.record(.end))
        }
        try await output.writeAll(pattern(5000))
        try await output.shutDown()
        var bytes: [UInt8] = []
        for try await chunk in input.chunks(upTo: 1000) { bytes += chunk }
        #expect(bytes == pattern(5000))
        fixture.closeBoth()
        echo.join()
    }
}
