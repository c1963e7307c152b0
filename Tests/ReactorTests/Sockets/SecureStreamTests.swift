import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

/// Streams whose connection a transport protects; a masking one, which shows what a connection does for any.
@Suite(.runLoop) struct SecureStreamTests {
    /// A pair that is protected and open, with its peer after the handshake.
    fileprivate static func open(
        _ origin: SocketOrigin = .ipv4, isNarrow: Bool = false, bufferSize: Int? = nil
    ) throws -> SocketFixture {
        let fixture = try SocketFixture(origin, isNarrow: isNarrow)
        if let bufferSize { fixture.output.setProperty(bufferSize, forKey: .writeBufferSizeKey) }
        #expect(fixture.input.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.open() }
        try fixture.peer.answerHello()
        waitUntil { fixture.streams.allSatisfy { $0.streamStatus != .opening } }
        for stream in fixture.streams { try #require(stream.streamStatus == .open) }
        return fixture
    }

    // MARK: The handshake

    @Test(arguments: SocketOrigin.allCases)
    func `a stream is open after the handshake and not before`(origin: SocketOrigin) throws {
        let (fixture, recorder) = (try SocketFixture(origin), Recorder())
        let security = MaskingSecurity()
        #expect(fixture.output.protect(by: security))
        for stream in fixture.streams { stream.start(recorder) }
        let peer = try fixture.peer
        #expect(peer.receive(3) == Masking.record(.hello))
        RunLoop.current.poll()
        #expect(recorder.events.isEmpty)
        #expect(fixture.streams.allSatisfy { $0.streamStatus == .opening })
        peer.send(Masking.record(.hello))
        RunLoop.current.serve { recorder.count(.openCompleted) == 2 }
        #expect(security.threads.value == ["reactor.streams"])
        #expect(!fixture.input.hasBytesAvailable)
        fixture.closeBoth()
    }

    @Test func `a server is open after the client's hello`() throws {
        let (fixture, recorder) = (try SocketFixture(.descriptor), Recorder())
        #expect(fixture.input.protect(by: MaskingSecurity(isServer: true)))
        for stream in fixture.streams { stream.start(recorder) }
        RunLoop.current.poll()
        #expect(recorder.events.isEmpty)
        try fixture.peer.send(Masking.record(.hello) + Masking.record(.data, [7, 8]))
        recorder.readsEverything()
        RunLoop.current.serve { recorder.bytes.count == 2 }
        #expect(recorder.bytes == [7, 8])
        #expect(try fixture.peer.receive(3) == Masking.record(.hello))
        fixture.closeBoth()
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor])
    func `the handshake ends within the connect timeout`(origin: SocketOrigin) throws {
        let (fixture, recorder) = (try SocketFixture(origin), Recorder())
        fixture.output.connectTimeout = .seconds(7)
        #expect(fixture.input.protect(by: MaskingSecurity()))
        fixture.input.connectTimeout = .milliseconds(20)
        let start = ContinuousClock.now
        for stream in fixture.streams { stream.start(recorder) }
        RunLoop.current.serve { recorder.count(.errorOccurred) == 2 }
        #expect(start.duration(to: .now) >= .milliseconds(20))
        for stream in fixture.streams {
            let error = try #require(stream.streamError as? IOError)
            #expect(error.errno == .timedOut)
            // A busy machine may not even have connected by then.
            #expect(error.operation == .handshake || origin == .ipv4 && error.operation == .connect)
        }
    }

    @Test func `a peer that resets the connection during the handshake is an error of the handshake`() throws
    {
        let fixture = try SocketFixture(.ipv4)
        #expect(fixture.input.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.open() }
        let peer = try fixture.peer
        #expect(peer.receive(3) == Masking.record(.hello))
        peer.reset()
        waitUntil { fixture.streams.allSatisfy { $0.streamStatus == .error } }
        let address = try #require(fixture.server?.address)
        for stream in fixture.streams {
            #expect(
                stream.streamError.map { "\($0)" }
                    == "TLS handshake with \(address): Connection reset by peer")
        }
    }

    @Test func `a failed handshake fails both halves with its reason`() throws {
        let (fixture, recorder) = (try SocketFixture(), Recorder())
        #expect(fixture.input.protect(by: MaskingSecurity(rejectsPeer: true)))
        for stream in fixture.streams { stream.start(recorder) }
        try fixture.peer.answerHello()
        RunLoop.current.serve { recorder.count(.errorOccurred) == 2 }
        #expect(recorder.events == [.errorOccurred, .errorOccurred])
        for stream in fixture.streams { #expect(stream.streamError as? Masking.Failure == .rejected) }
        fixture.closeBoth()
        #expect(try fixture.peer.receiveToEnd() == [])
    }

    @Test(arguments: [true, false])
    func `a peer that leaves during the handshake fails both halves`(resets: Bool) throws {
        let (fixture, recorder) = (try SocketFixture(), Recorder())
        #expect(fixture.input.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.start(recorder) }
        let peer = try fixture.peer
        _ = peer.receive(3)
        if resets { peer.reset() } else { peer.close() }
        RunLoop.current.serve { recorder.count(.errorOccurred) == 2 }
        for stream in fixture.streams {
            if resets {
                #expect(stream.streamErrno == .connectionReset)
            } else {
                #expect(stream.streamError as? Masking.Failure == .truncated)
            }
        }
    }

    @Test func `closing during the handshake ends it without events`() throws {
        let (fixture, recorder) = (try SocketFixture(), Recorder())
        #expect(fixture.input.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.start(recorder) }
        let peer = try fixture.peer
        _ = peer.receive(3)
        fixture.closeBoth()
        #expect(peer.receiveToEnd() == [])
        peer.send(Masking.record(.hello))
        RunLoop.current.poll()
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
        let fixture = try Self.open()
        #expect(!fixture.input.protect(by: MaskingSecurity()))
        fixture.closeBoth()
        #expect(!fixture.input.protect(by: MaskingSecurity()))
        #expect(!InputStream(data: [1]).protect(by: MaskingSecurity()))
        let ended = try SocketFixture()
        try ended.openBoth()
        try ended.output.shutDown()
        #expect(!ended.input.protect(by: MaskingSecurity()))
        ended.closeBoth()
    }

    // MARK: Receiving

    @Test(arguments: [1, 3, 1000, 65_536])
    func `all clear bytes are delivered, however they arrive`(size: Int) throws {
        let (fixture, recorder) = (try Self.open(), Recorder())
        let expected = pattern(size < 1000 ? 3000 : 200_000)
        recorder.readsEverything(by: size)
        fixture.input.delegate = recorder
        fixture.input.schedule(in: .current, forMode: .default)
        let peer = Carrier(try fixture.peer)
        let sender = try JoinableThread {
            peer.value.send(Masking.records(of: expected) + Masking.record(.end))
        }
        RunLoop.current.serve { recorder.events.contains(.endEncountered) }
        sender.join()
        #expect(recorder.bytes == expected)
        #expect(fixture.input.streamError == nil)
    }

    @Test func `bytes that wait in the transport are delivered although the socket is quiet`() throws {
        let (fixture, recorder) = (try Self.open(), Recorder())
        try fixture.peer.send(Masking.records(of: pattern(2000), size: 100))
        recorder.readsEverything(by: 1)
        fixture.input.delegate = recorder
        fixture.input.schedule(in: .current, forMode: .default)
        RunLoop.current.serve { recorder.bytes.count == 2000 }
        #expect(recorder.bytes == pattern(2000))
        #expect(recorder.count(.hasBytesAvailable) == 2000)
        fixture.closeBoth()
    }

    @Test func `records without clear bytes make no event and do not keep the loop busy`() throws {
        let (fixture, recorder) = (try Self.open(), Recorder())
        recorder.readsEverything()
        fixture.input.delegate = recorder
        fixture.input.schedule(in: .current, forMode: .default)
        let peer = try fixture.peer
        // The tickets and half of a record.
        let data = Masking.record(.data, [1, 2, 3, 4])
        peer.send(Masking.record(.ticket, pattern(64)) + Masking.record(.ticket) + data.prefix(4))
        RunLoop.current.poll()
        #expect(!fixture.input.hasBytesAvailable)
        #expect(recorder.count(.hasBytesAvailable) == 0)
        #expect(RunLoop.current.passesInAWhile() < 10)
        peer.send(Array(data.dropFirst(4)))
        RunLoop.current.serve { !recorder.bytes.isEmpty }
        #expect(recorder.bytes == [1, 2, 3, 4])
        #expect(recorder.count(.hasBytesAvailable) == 1)
        fixture.closeBoth()
    }

    @Test(arguments: [true, false])
    func `asking a stream whether it has bytes takes no event away`(explains: Bool) throws {
        let (fixture, recorder) = (try Self.open(), Recorder())
        let input = fixture.input!
        input.delegate = recorder
        input.schedule(in: .current, forMode: .default)
        RunLoop.current.poll()
        try fixture.peer.send(Masking.record(.data, [1]))
        waitUntil { explains ? input.explain().contains("bytes to read") : input.hasBytesAvailable }
        RunLoop.current.poll()
        #expect(recorder.count(.hasBytesAvailable) == 1)
        #expect(input.read(upTo: 10) == [1])
        fixture.closeBoth()
    }

    @Test func `a delegate that does not read is told once, and the loop sleeps`() throws {
        let (fixture, recorder) = (try Self.open(), Recorder())
        fixture.input.delegate = recorder
        fixture.input.schedule(in: .current, forMode: .default)
        let peer = try fixture.peer
        peer.send(Masking.record(.data, [1]))
        RunLoop.current.serve { recorder.count(.hasBytesAvailable) == 1 }
        peer.send(Masking.record(.data, [2]))
        RunLoop.current.poll()
        #expect(RunLoop.current.passesInAWhile() < 10)
        #expect(recorder.count(.hasBytesAvailable) == 1)
        var bytes: [UInt8] = []
        while bytes.count < 2 { bytes += fixture.input.read(upTo: 10) }
        #expect(bytes == [1, 2])
        peer.send(Masking.record(.data, [3]))
        RunLoop.current.serve { recorder.count(.hasBytesAvailable) == 2 }
        fixture.closeBoth()
    }

    @Test func `an end that the peer has not announced is an error after its bytes`() throws {
        let (fixture, recorder) = (try Self.open(), Recorder())
        recorder.readsEverything()
        fixture.input.delegate = recorder
        fixture.input.schedule(in: .current, forMode: .default)
        try fixture.peer.send(Masking.record(.data, [1, 2]) + [2, 0])
        try fixture.peer.shutDown()
        RunLoop.current.serve { recorder.events.contains(.errorOccurred) }
        #expect(recorder.bytes == [1, 2])
        #expect(!recorder.events.contains(.endEncountered))
        #expect(fixture.input.streamError as? Masking.Failure == .truncated)
        #expect(fixture.output.write([1]) == 0)
        #expect(fixture.output.streamError as? Masking.Failure == .truncated)
    }

    @Test(arguments: [true, false])
    func `a thread without a loop reads all bytes while a loop asks for them`(isScheduled: Bool) async throws
    {
        try await onItsOwnThread {
            let fixture = try Self.open()
            if isScheduled { fixture.input.schedule(in: .current, forMode: .default) }
            let (input, peer) = (Carrier(fixture.input!), Carrier(try fixture.peer))
            let bytes = Shared<[UInt8]>([])
            let reader = try JoinableThread {
                while case let more = input.value.read(upTo: 100), !more.isEmpty {
                    bytes.update { $0 += more }
                }
            }
            let sender = try JoinableThread {
                for start in stride(from: 0, to: 20_000, by: 1000) {
                    peer.value.send(
                        Masking.records(of: Array(pattern(20_000)[start..<start + 1000]), size: 90))
                    sched_yield()
                }
                peer.value.send(Masking.record(.end))
            }
            while fixture.input.streamStatus != .atEnd {
                if isScheduled {
                    RunLoop.current.poll(passes: 1)
                } else {
                    _ = fixture.input.hasBytesAvailable
                }
            }
            reader.join()
            sender.join()
            #expect(bytes.value == pattern(20_000))
        }
    }

    // MARK: Sending

    @Test(arguments: [nil, 0, 10_000, 1 << 20])
    func `all accepted bytes arrive protected, before the announced end`(bufferSize: Int?) async throws {
        try await onItsOwnThread {
            let (fixture, recorder) = (try Self.open(isNarrow: true, bufferSize: bufferSize), Recorder())
            let expected = pattern(1_000_000)
            let answer = Answer<[UInt8]?>()
            let peer = Carrier(try fixture.peer)
            let receiver = try JoinableThread { answer.give(peer.value.receiveRecordsToEnd()) }
            var count = 0
            recorder.onEvent = { stream, event in
                guard event == .hasSpaceAvailable else { return }
                count += max(0, (stream as! OutputStream).writeOnce(expected[count...].prefix(100_000)))
                if count == expected.count { fixture.closeBoth() }
            }
            fixture.output.delegate = recorder
            fixture.output.schedule(in: .current, forMode: .default)
            RunLoop.current.serve { count == expected.count }
            receiver.join()
            #expect(answer.wait() == expected)
            #expect(peer.value.receiveToEnd() == [])
        }
    }

    @Test func `a delegate is told of room when the socket has some`() throws {
        let (fixture, recorder) = (try Self.open(isNarrow: true), Recorder())
        try fixture.narrow()
        fixture.output.delegate = recorder
        fixture.output.schedule(in: .current, forMode: .default)
        var count = 0
        recorder.onEvent = { stream, _ in count += (stream as! OutputStream).writeOnce(pattern(100_000)) }
        // The peer reads nothing: what is accepted is limited.
        while fixture.output.hasSpaceAvailable || recorder.events.isEmpty {
            RunLoop.current.poll(passes: 1)
        }
        let (events, accepted) = (recorder.events.count, count)
        #expect(RunLoop.current.passesInAWhile() < 10)
        #expect(recorder.events.count == events && accepted < 1_000_000)
        let peer = Carrier(try fixture.peer)
        let receiver = try JoinableThread { _ = peer.value.receiveToEnd() }
        RunLoop.current.serve { recorder.events.count > events }
        recorder.onEvent = { _, _ in }
        fixture.closeBoth()
        receiver.join()
    }

    @Test func `a thread without a loop writes more than the socket has room for`() throws {
        let fixture = try Self.open(isNarrow: true)
        let (answer, peer) = (Answer<[UInt8]?>(), Carrier(try fixture.peer))
        let receiver = try JoinableThread { answer.give(peer.value.receiveRecordsToEnd()) }
        var rest = pattern(500_000)[...]
        while !rest.isEmpty {
            rest = rest.dropFirst(max(0, fixture.output.writeOnce(rest.prefix(70_000))))
        }
        fixture.closeBoth()
        receiver.join()
        #expect(answer.wait() == pattern(500_000))
    }

    @Test func `without descriptors left, bytes that the socket has no room for are sent`() async {
        await #expect(processExitsWith: .exitCode(7)) {
            let fixture = try SecureStreamTests.open(isNarrow: true)
            let (answer, peer) = (Answer<[UInt8]?>(), Carrier(try fixture.peer))
            let mayRead = Answer<Bool>()
            _ = try JoinableThread {
                _ = mayRead.wait()
                answer.give(peer.value.receiveRecordsToEnd())
            }
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            limit.rlim_cur = 0
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            // More than the socket has room for.
            let first = fixture.output.writeOnce(pattern(500_000))
            mayRead.give(true)
            let second = fixture.output.writeOnce(pattern(500_000))
            fixture.closeBoth()
            let expected = Array(pattern(500_000).prefix(first) + pattern(500_000).prefix(second))
            exit(first > 0 && second > 0 && answer.wait() == expected ? 7 : 3)
        }
    }

    // MARK: Ending

    @Test func `an output that is shut down announces its end, and the input goes on`() throws {
        let (fixture, recorder) = (try Self.open(), Recorder())
        let peer = try fixture.peer
        #expect(fixture.output.write([1, 2]) == 2)
        try fixture.output.shutDown()
        #expect(peer.receiveRecordsToEnd() == [1, 2])
        #expect(peer.receiveToEnd() == [])
        peer.send(Masking.record(.data, [3]) + Masking.record(.end))
        recorder.readsEverything()
        fixture.input.delegate = recorder
        fixture.input.schedule(in: .current, forMode: .default)
        RunLoop.current.serve { recorder.events.contains(.endEncountered) }
        #expect(recorder.bytes == [3])
        fixture.closeBoth()
    }

    @Test func `an input that has ended leaves the output usable`() throws {
        let fixture = try Self.open()
        let peer = try fixture.peer
        peer.send(Masking.record(.end))
        #expect(fixture.input.read(upTo: 1).isEmpty)
        #expect(fixture.input.streamStatus == .atEnd)
        #expect(fixture.output.write([1, 2, 3]) == 3)
        fixture.closeBoth()
        #expect(peer.receiveRecordsToEnd() == [1, 2, 3])
    }

    @Test(arguments: [true, false])
    func `the second half to be closed announces the end`(closesInputFirst: Bool) throws {
        let fixture = try Self.open()
        let peer = try fixture.peer
        #expect(fixture.output.write([9]) == 1)
        for stream in closesInputFirst ? fixture.streams : fixture.streams.reversed() { stream.close() }
        #expect(peer.receiveRecordsToEnd() == [9])
        #expect(peer.receiveToEnd() == [])
    }

    // MARK: Protecting an open connection

    @Test(arguments: [SocketOrigin.ipv4, .descriptor], [true, false])
    func `an open connection is protected from the next byte on`(
        origin: SocketOrigin, isScheduled: Bool
    ) throws {
        let (fixture, recorder) = (try SocketFixture(origin), Recorder())
        try fixture.openBoth()
        if isScheduled {
            for stream in fixture.streams { stream.schedule(in: .current, forMode: .default) }
        }
        let peer = try fixture.peer
        #expect(fixture.output.write([1]) == 1)
        #expect(peer.receive(1) == [1])
        peer.send([2])
        #expect(fixture.input.read(upTo: 1) == [2])
        #expect(fixture.output.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.delegate = recorder }
        peer.answerHello()
        peer.send(Masking.record(.data, [3]))
        if isScheduled {
            RunLoop.current.serve {
                recorder.count(.hasBytesAvailable) == 1 && recorder.count(.hasSpaceAvailable) > 0
            }
        }
        #expect(fixture.input.read(upTo: 10) == [3])
        #expect(fixture.output.write([4]) == 1)
        #expect(peer.receiveRecord()?.bytes == [4])
        #expect(fixture.streams.allSatisfy { $0.streamStatus == .open })
        fixture.closeBoth()
    }

    @Test func `bytes in the write buffer are sent before the handshake`() throws {
        let fixture = try SocketFixture(isNarrow: true)
        fixture.output.setProperty(300_000, forKey: .writeBufferSizeKey)
        try fixture.openBoth()
        #expect(fixture.output.writeOnce(pattern(300_000)) == 300_000)
        #expect(fixture.output.protect(by: MaskingSecurity()))
        let peer = try fixture.peer
        #expect(peer.receive(300_000) == pattern(300_000))
        peer.answerHello()
        #expect(fixture.output.write([5]) == 1)
        #expect(peer.receiveRecord()?.bytes == [5])
        fixture.closeBoth()
    }

    @Test(arguments: [nil, 10_000])
    func `a write that waits while the connection is protected sends no plain byte later`(
        bufferSize: Int?
    ) async throws {
        try await onItsOwnThread {
            let fixture = try SocketFixture(isNarrow: true)
            if let bufferSize { fixture.output.setProperty(bufferSize, forKey: .writeBufferSizeKey) }
            try fixture.openBoth()
            let (expected, written) = (pattern(3_000_000), Shared(0))
            let (output, writing) = (Carrier(fixture.output!), Answer<KernelThread>())
            let writer = try JoinableThread {
                writing.give(.current)
                while written.value < expected.count {
                    let count = output.value.writeOnce(expected[written.value...].prefix(10_000))
                    guard count > 0 else { return }
                    written.update { $0 += count }
                }
                output.value.close()
            }
            // The peer reads nothing yet: the thread sleeps only where it waits for room.
            let thread = writing.wait()
            waitUntil { !output.value.hasSpaceAvailable && thread.isAsleep }
            let plainCount = written.value
            #expect(plainCount < expected.count)
            #expect(fixture.input.protect(by: MaskingSecurity()))
            fixture.input.close()
            let peer = try fixture.peer
            #expect(peer.receive(plainCount) == Array(expected[..<plainCount]))
            peer.answerHello()
            #expect(peer.receiveRecordsToEnd() == Array(expected[plainCount...]))
            writer.join()
        }
    }

    @Test func `a failure wakes the threads that wait for the handshake of an open connection`() async throws
    {
        try await onItsOwnThread {
            var fixture: SocketFixture
            repeat {
                fixture = try SocketFixture()
                try fixture.openBoth()
                fixture.input.idleTimeout = .milliseconds(50)
                // A machine that is busy may take longer than that.
            } while !fixture.input.protect(by: MaskingSecurity())
            let (input, output) = (Carrier(fixture.input!), Carrier(fixture.output!))
            let threads = [
                try JoinableThread { #expect(input.value.read(upTo: 1).isEmpty) },
                try JoinableThread { #expect(output.value.writeOnce([1]) == -1) },
            ]
            for thread in threads { thread.join() }
            for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
            // The handshake has ended too: an answer is not read.
            try fixture.peer.answerHello()
            fixture.closeBoth()
            #expect(try fixture.peer.receiveRecord() == nil)
        }
    }

    @Test(arguments: [SocketOrigin.ipv4, .descriptor])
    func `the connect timeout can be set before an open connection is protected`(
        origin: SocketOrigin
    ) throws {
        let (fixture, recorder) = (try SocketFixture(origin), Recorder())
        try fixture.openBoth()
        for stream in fixture.streams {
            stream.delegate = recorder
            stream.schedule(in: .current, forMode: .default)
        }
        fixture.output.connectTimeout = .milliseconds(20)
        #expect(fixture.input.protect(by: MaskingSecurity()))
        #expect(!fixture.input.setProperty(Duration.seconds(1), forKey: .socketConnectTimeoutKey))
        RunLoop.current.serve { recorder.count(.errorOccurred) == 2 }
        for stream in fixture.streams { #expect(stream.streamErrno == .timedOut) }
    }

    @Test func `a task that has read ahead of a protection is refused one`() async throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        let (input, peer) = (fixture.input!, try fixture.peer)
        peer.send(Array("220 ready\n250 injected\n".utf8))
        for try await line in input.lines {
            #expect(line == "220 ready")
            // The next line may have been read already.
            #expect(!input.protect(by: MaskingSecurity()))
            break
        }
        // The line was put back, or is in the socket.
        #expect(input.protect(by: MaskingSecurity()))
        #expect(input.read(upTo: 100).isEmpty)
        waitUntil { fixture.streams.allSatisfy { $0.streamStatus == .error } }
        for stream in fixture.streams { #expect(stream.streamError as? Masking.Failure == .unprotectedBytes) }
        fixture.closeBoth()
    }

    @Test func `unread bytes are an error for a client that protects an open connection`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        try fixture.peer.send(Array("220 ready\r\n250 injected\r\n".utf8))
        #expect(fixture.input.read(upTo: 11).count == 11)
        #expect(fixture.input.protect(by: MaskingSecurity()))
        #expect(fixture.input.read(upTo: 100).isEmpty)
        for stream in fixture.streams {
            #expect(stream.streamError as? Masking.Failure == .unprotectedBytes)
        }
        fixture.closeBoth()
    }

    @Test func `a server may find the client's hello when it protects an open connection`() throws {
        let fixture = try SocketFixture(.descriptor)
        try fixture.openBoth()
        let peer = try fixture.peer
        peer.send(Masking.record(.hello))
        #expect(fixture.input.protect(by: MaskingSecurity(isServer: true)))
        #expect(peer.receive(3) == Masking.record(.hello))
        #expect(fixture.output.write([6]) == 1)
        #expect(peer.receiveRecord()?.bytes == [6])
        fixture.closeBoth()
    }

    @Test func `a read and a shutdown during the handshake wait for it`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        #expect(fixture.input.protect(by: MaskingSecurity()))
        try fixture.output.shutDown()
        let (peer, input) = (try fixture.peer, Carrier(fixture.input!))
        let answer = Answer<[UInt8]>()
        let reader = try JoinableThread { answer.give(input.value.read(upTo: 1)) }
        peer.answerHello()
        peer.send(Masking.record(.data, [1]))
        #expect(answer.wait() == [1])
        reader.join()
        #expect(peer.receiveRecordsToEnd() == [])
        fixture.closeBoth()
    }

    @Test func `a shutdown waits for no step of a handshake, and may be made in one`() throws {
        let fixture = try SocketFixture()
        try fixture.openBoth()
        let output = Carrier(fixture.output!)
        let security = MaskingSecurity(decide: { try? output.value.shutDown() })
        #expect(fixture.input.protect(by: security))
        let peer = try fixture.peer
        peer.answerHello()
        #expect(peer.receiveRecordsToEnd() == [])
        #expect(peer.receiveToEnd() == [])
        fixture.closeBoth()
    }

    // MARK: Tasks and lifetime

    @Test func `tasks read and write protected bytes`() async throws {
        let fixture = try SocketFixture()
        let (input, output) = (fixture.input!, fixture.output!)
        #expect(input.protect(by: MaskingSecurity()))
        for stream in fixture.streams { stream.open() }
        let peer = Carrier(try fixture.peer)
        let echo = try JoinableThread {
            peer.value.answerHello()
            while let (type, bytes) = peer.value.receiveRecord(), type == .data {
                peer.value.send(Masking.records(of: bytes, size: 7))
            }
            peer.value.send(Masking.record(.end))
        }
        try await output.writeAll(pattern(5000))
        try await output.shutDown()
        var bytes: [UInt8] = []
        for try await chunk in input.chunks(upTo: 1000) { bytes += chunk }
        #expect(bytes == pattern(5000))
        fixture.closeBoth()
        echo.join()
    }

    @Test func `released streams release their transport's connection`() throws {
        let fixture = try Self.open()
        let peer = try fixture.peer
        #expect(fixture.output.write([1]) == 1)
        weak let input = fixture.input
        fixture.releaseStreams()
        #expect(input == nil)
        #expect(peer.receiveRecordsToEnd() == [1])
        #expect(peer.receiveToEnd() == [])
    }
}
