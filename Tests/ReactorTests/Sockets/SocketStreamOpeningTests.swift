import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Connecting, its failures, and closing meanwhile.
@Suite(.runLoop) struct SocketStreamOpeningTests {
    private let loop = RunLoop.current

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `one half connects, and the other then opens at once`(
        origin: SocketOrigin, beginsWithInput: Bool
    ) throws {
        let fixture = try SocketFixture(origin)
        let (first, second) = (Recorder(), Recorder())
        let halves = beginsWithInput ? fixture.streams : fixture.streams.reversed()
        fixture.schedule(beginsWithInput ? first : second, beginsWithInput ? second : first)
        loop.poll()
        try waitForStreamsThread()
        #expect(fixture.server?.hasPendingConnection != true && first.events.isEmpty)
        #expect(halves[0].streamStatus == .notOpen)
        halves[0].open()
        loop.serve { first.events.first == .openCompleted }
        loop.poll()
        #expect(second.events.isEmpty && halves[1].streamStatus == .notOpen)
        halves[1].open()
        #expect(halves[1].streamStatus == .open && second.events.isEmpty)
        loop.serve { second.events.first == .openCompleted }
        #expect(second.count(.openCompleted) == 1 && first.count(.openCompleted) == 1)
    }

    @Test func `a stream is opening until it is connected, and may be closed without events`() throws {
        let (server, recorder) = (try FullServer(), Recorder())
        let (input, output) = Stream.connection(to: server.address)
        for stream in [input, output] as [Stream] {
            for _ in 0..<2 {
                stream.start(recorder)
                #expect(stream.streamStatus == .opening)
            }
        }
        loop.poll()
        #expect(!input.hasBytesAvailable && !output.hasSpaceAvailable)
        #expect(throws: Errno.socketNotConnected) { try output.shutDown() }
        for stream in [input, output] as [Stream] {
            stream.close()
            #expect(stream.streamStatus == .closed && stream.streamError == nil)
        }
        #expect(loop.run(in: .default) == .finished && recorder.events.isEmpty)
    }

    @Test(arguments: SocketOrigin.allCases)
    func `reading and writing off a loop block until the stream is open`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        for stream in fixture.streams { stream.open() }
        #expect(fixture.streams.allSatisfy { $0.streamStatus == .open } || origin != .descriptor)
        #expect(try fixture.output.write([1, 2]) == 2 && fixture.peer.receive(2) == [1, 2])
        let peer = try fixture.peer
        let sender = try JoinableThread(name: "sender") { peer.send([3]) }
        #expect(fixture.input.read(upTo: 10) == [3])
        sender.join()
    }

    @Test(arguments: SocketOrigin.allCases)
    func `a connection can be made and used by polling, without a loop`(origin: SocketOrigin) throws {
        let fixture = try SocketFixture(origin)
        for stream in fixture.streams { stream.open() }
        waitUntil { fixture.output.hasSpaceAvailable }
        #expect(fixture.output.streamStatus == .open && !fixture.input.hasBytesAvailable)
        try fixture.peer.send([7])
        waitUntil { fixture.input.hasBytesAvailable }
        #expect(fixture.input.read(upTo: 10) == [7] && !fixture.input.hasBytesAvailable)
        try fixture.peer.close()
        waitUntil { fixture.input.hasBytesAvailable }
        #expect(fixture.input.read(upTo: 10).isEmpty && fixture.input.streamStatus == .atEnd)
    }

    @Test func `getStreamsToHost fills the pointers that are not nil`() throws {
        let server = try SocketServer()
        var (input, output): (InputStream?, OutputStream?)
        Stream.getStreamsToHost(
            withName: "127.0.0.1", port: Int(server.port), inputStream: &input, outputStream: &output)
        output?.open()
        #expect(try output?.write([1]) == 1 && server.accept().receive(1) == [1])
        Stream.getStreamsToHost(
            withName: "127.0.0.1", port: Int(server.port), inputStream: &input, outputStream: nil)
        input?.open()
        try server.accept().send([2])
        #expect(input?.read(upTo: 1) == [2])
    }

    @Test func `an invalid port or descriptor traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            Stream.getStreamsToHost(withName: "localhost", port: 65_536, inputStream: nil, outputStream: nil)
        }
        #expect(result.message.contains("65535"))
        let other = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Stream.connection(descriptor: FileDescriptor(rawValue: -1))
        }
        #expect(other.message.contains("-1"))
    }

    // MARK: Failures

    @Test(arguments: AddressKind.allCases)
    func `a refusal is delivered once to each half that is opened`(kind: AddressKind) throws {
        let (reader, writer) = (Recorder(), Recorder())
        let pair = Stream.connection(to: try refusingAddress(kind))
        let error = kind == .path ? Errno.noSuchFileOrDirectory : .connectionRefused
        pair.output.delegate = writer
        pair.output.schedule(in: loop, forMode: .default)
        pair.input.start(reader)
        loop.serve { !reader.events.isEmpty }
        loop.poll()
        #expect(reader.events == [.errorOccurred] && writer.events.isEmpty)
        #expect(pair.input.streamErrno == error && pair.output.streamStatus == .notOpen)
        pair.output.open()
        loop.serve { !writer.events.isEmpty }
        loop.poll()
        #expect(writer.events == [.errorOccurred] && reader.events == [.errorOccurred])
        #expect(pair.output.streamErrno == error && loop.passesInAWhile() < 10)
        #expect(pair.input.read(upTo: 1).isEmpty && pair.output.writeOnce([1]) == -1)
        pair.input.close()
        pair.output.close()
        #expect(loop.run(in: .default) == .finished && pair.input.streamStatus == .error)
    }

    @Test(arguments: ["", "nobody.invalid"])
    func `an unknown host is a resolver error of both halves, and of their calls`(host: String) throws {
        let recorder = Recorder()
        let (input, output) = Stream.connection(toHost: host, port: 80)
        input.start(recorder)
        output.open()
        #expect(output.writeOnce([1]) == -1 && output.streamStatus == .error)
        let error = try #require(output.streamError as? ResolverError)
        #expect(throws: error) { try output.flush() }
        #expect(throws: error) { try output.shutDown() }
        loop.serve { !recorder.events.isEmpty }
        #expect(recorder.events == [.errorOccurred] && input.streamError as? ResolverError == error)
        #expect(error.code == .unknownName || !host.isEmpty)
    }

    @Test(arguments: [true, false])
    func `connecting fails after the timeout`(isScheduled: Bool) throws {
        let (server, recorder) = (try FullServer(), Recorder())
        let pair = Stream.connection(to: server.address)
        pair.output.connectTimeout = .milliseconds(20)
        let begin = Deadline.now
        if isScheduled {
            pair.input.start(recorder)
            loop.serve { !recorder.events.isEmpty }
            #expect(recorder.events == [.errorOccurred])
        } else {
            pair.input.open()
            #expect(pair.input.read(upTo: 1).isEmpty)
        }
        #expect(pair.input.streamErrno == .timedOut && Deadline.now - begin >= .milliseconds(20))
    }

    @Test(arguments: [true, false])
    func `a client may connect again in its error callback`(waits: Bool) throws {
        let (refusing, server, recorder) = (try refusingAddress(), try SocketServer(), Recorder())
        var pair = Stream.connection(to: refusing)
        recorder.onEvent = { stream, event in
            guard event == .errorOccurred else { return }
            pair.input.close()
            pair.output.close()
            pair = Stream.connection(to: server.address)
            pair.input.start(recorder)
            if waits { pair.output.open() }
            if waits { #expect(pair.output.write([1]) == 1) }
        }
        pair.input.start(recorder)
        loop.serve { recorder.events.count == 2 }
        #expect(recorder.events == [.errorOccurred, .openCompleted])
        pair.output.open()
        pair.output.write([2])
        #expect(try server.accept().receive(waits ? 2 : 1) == (waits ? [1, 2] : [2]))
    }

    // MARK: Closing while connecting

    @Test(arguments: [true, false])
    func `one half may be closed while connecting, and the other continues`(closesInput: Bool) throws {
        let server = try FullServer(.path)
        let pair = Stream.connection(to: server.address)
        let (closed, left): (Stream, Stream) =
            closesInput ? (pair.input, pair.output) : (pair.output, pair.input)
        let (first, second) = (Recorder(), Recorder())
        closed.start(first)
        left.start(second)
        loop.poll()
        closed.close()
        #expect(closed.streamStatus == .closed && left.streamStatus == .opening)
        server.acceptOne()
        loop.serve { second.events.first == .openCompleted }
        loop.poll()
        #expect(first.events.isEmpty && closed.streamStatus == .closed)
        left.close()
        #expect(loop.run(in: .default) == .finished)
    }

    @Test(arguments: [0, 1, 2])
    func `releasing the streams while connecting releases everything`(opened: Int) throws {
        let server = try FullServer()
        weak var (known, other, connection): (AnyObject?, AnyObject?, AnyObject?)
        do {
            let pair = Stream.connection(to: server.address)
            (known, other) = (pair.input.internals, pair.output.internals)
            connection = pair.input.sharedConnection
            try #require(connection != nil)
            if opened > 0 { pair.input.open() }
            if opened > 1 { pair.output.open() }
            pair.input.schedule(in: .current, forMode: .default)
        }
        waitUntil { known == nil && other == nil && connection == nil }
        #expect(loop.run(in: .default) == .finished)
    }
}
